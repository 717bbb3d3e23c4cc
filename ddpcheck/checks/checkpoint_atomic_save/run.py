"""Does a kill at any moment of a save leave the checkpoint before it whole?"""

from __future__ import annotations

from collections import defaultdict

from ddpcheck.checks.checkpoint_atomic_save import folders
from ddpcheck.checks.checkpoint_atomic_save.earlier_checkpoints import Moment, counted
from ddpcheck.judging.file_history import CLAIMS, LOADS, NEVER, SAVES, Files, Touch, done, files_of, shown
from ddpcheck.judging.several_writers import by_rank, shared_paths
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import Finding

EARLIER = "ddpcheck saw no save by one rank alone while an earlier checkpoint was there"
"""Why nothing was checked."""


def judge(world: World) -> Judged:
    """The verdict on saves that go straight over what they are to replace."""
    files, several = files_of(world), shared_paths(world)
    puts: set[Moment] = set()
    over: dict[tuple[object, ...], list[Touch]] = defaultdict(list)
    for path in files.writes:
        for writes in by_rank(files.writes[path]):
            kept = _checkpoints(files, path, writes)
            puts.update((t.number, t.start) for t in kept)
            # What a rank finds there first may be another's, where several write it: that is a mistake of its own.
            for t in kept[1:] if path in several else kept:
                if t.record.op == "write" and t.record.existed and not _is_spare(files, path, writes, t):
                    over[t.number, t.where].append(t)
    findings = [_in_place(touches) for touches in over.values()]
    findings += [*folders.over_another(world, files), *folders.under_old_marks(files)]
    compared, made = counted(world, puts)
    checked = len(compared.union((t.number, t.start) for touches in over.values() for t in touches))
    because = EARLIER if made else "ddpcheck saw no checkpoint being saved"
    return Judged(checked=checked, of=len(made), findings=tuple(findings), skipped_because="" if checked else because)


def _checkpoints(files: Files, path: str, writes: list[Touch]) -> list[Touch]:
    """Of one rank's writes to a path, those that put a checkpoint there."""
    loaded = any(t.record.how in LOADS for t in files.reads.get(path, ()))
    saved = any(t.record.how in SAVES for t in writes)
    found = []
    for t in writes:
        if t.record.how in SAVES:
            fits = bool(t.record.keys)
        elif t.record.op == "rename":
            fits = loaded or t.record.path in files.states
        else:  # where it was opened to be saved into, the save is on record itself
            fits = t.record.how == "open" and not saved and loaded
        if fits:
            found.append(t)
    return found


def _is_spare(files: Files, path: str, writes: list[Touch], save: Touch) -> bool:
    """Whether what is written over was no checkpoint, or this is not where the checkpoint will be."""
    before = [t for t in writes if t.start < save.start and not (t.record.how == "open" and t.end == t.start)]
    if before and before[-1].record.how in CLAIMS:
        return True  # an empty file, made to have a name of its own
    after = next((t.start for t in writes if t.start > save.start), NEVER)
    if any(t.rank is save.rank and save.start < t.start < after for t in files.removals.get(path, ())):
        return True  # a temporary name
    last = max((t.start for t in before), default=0)
    return any(
        t.rank is save.rank and last < t.start < save.start and _is_copied(files, t) for t in files.reads.get(path, ())
    )


def _is_copied(files: Files, read: Touch) -> bool:
    """Whether the line that has read a file has written another one at once: a copy is kept."""
    return any(
        t.rank is read.rank and t.where == read.where and 0 < t.start - read.start <= 2
        for path, touches in files.writes.items()
        if path != read.path
        for t in touches
    )


def _in_place(touches: list[Touch]) -> Finding:
    first = touches[0]
    name = shown(first)
    return Finding(
        rule="in-place-save",
        severity="warning",
        ranks=(first.number,),
        subject=f"file {name}",
        expected="a kill at any moment of a save to leave the checkpoint before it whole",
        found=f"{done(first)} going straight over {name}, which was there already: while it writes, there is neither "
        "the old checkpoint nor the new one",
        advice="Save to a temporary name in the same folder, then os.replace() it onto the name that it is to have.",
        where=first.where,
        count=len(touches),
        links=tuple(sorted({f"file {t.path}" for t in touches}))[:5],
    )
