"""Who writes a file, and whether a kill in the midst of it loses the one before.

Judges of checkpoint-single-writer and checkpoint-atomic-save.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ddpcheck.judging.file_history import (
    CLAIMS,
    LOADS,
    NEVER,
    SAVES,
    Files,
    Touch,
    done,
    is_checkpoint,
    is_lock,
    shown,
    stopped_by,
)
from ddpcheck.judging.happens_before import Order
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, ranks_text

SINGLE, ATOMIC = "checkpoint-single-writer", "checkpoint-atomic-save"


# --- one rank writes a path


def single_writer(files: Files, saves: bool = False) -> tuple[Judged, set[str]]:
    """The verdict, and the paths that several ranks write; ``saves`` where all files are a checkpoint's.

    A script may have its ranks write in turn; of a save that is to have one writer they are several all the same.
    """
    order = Order(files.world)
    several: dict[str, list[Touch]] = {}
    looked_at = 0
    for path, touches in files.writes.items():
        writes = [t for t in touches if t.record.how not in CLAIMS and not t.record.locked and not is_lock(path)]
        looked_at += bool(writes)
        if len({t.number for t in writes}) > 1 and (saves or not _take_turns(order, writes)):
            several[path] = writes
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, writes in several.items():
        first = writes[0].where
        place = (first.file, first.function) if first is not None else None
        groups[place, frozenset(t.number for t in writes)].append(path)
    findings = tuple(_several(files, {p: several[p] for p in paths}, saves) for paths in groups.values())
    because = "" if looked_at else "no file was written"
    return Judged(check=SINGLE, checked=looked_at, findings=findings, skipped_because=because), set(several)


def _take_turns(order: Order, writes: Sequence[Touch]) -> bool:
    """Whether the program keeps all writes of different ranks apart: one rank writes at any time."""
    by_rank = {mine[0].number: mine for mine in _by_rank(writes)}
    for write in sorted(writes, key=lambda t: t.start):
        for rank, theirs in by_rank.items():
            if rank == write.number:
                continue
            before = bisect_left(theirs, True, key=lambda t: not order.known(rank, t.end, write.number, write.start))
            if before < len(theirs) and not order.known(write.number, write.end, rank, theirs[before].start):
                return False
    return True


def _can_tear(writes: Sequence[Touch]) -> bool:
    """Whether what is written at a time by several may be neither the one nor the other: checkpoints, and renames."""
    return any(is_checkpoint(t) or t.record.how in SAVES or t.record.op == "rename" for t in writes)


def _other_bytes(files: Files, path: str) -> bool:
    """Whether the ranks that have written a small file, once each, were seen to put other bytes there."""
    seen = files.contents.get(path, [])
    once = len(files.writes[path]) == len({t.number for t in files.writes[path]})
    return once and path not in files.appended and len({t.record.identity for t in seen}) > 1


def _several(files: Files, several: dict[str, list[Touch]], saves: bool) -> Finding:
    """One function that several ranks go through, and what each of them writes there."""
    paths = sorted(several, key=lambda p: several[p][0].start)
    lasting = [p for p in paths if p not in files.removals] or paths
    path = next((p for p in lasting if any(map(is_checkpoint, several[p]))), lasting[0])
    writes = [t for p in paths for t in several[p]]
    first = min(writes, key=lambda t: (t.number, t.start))
    name = shown(first, path)
    ranks = tuple(sorted({t.number for t in writes}))
    each = [next(t for t in writes if t.number == r) for r in ranks]
    whole = all(_by_a_library(several[p]) for p in paths)
    apart = len(files.hosts) > 1 and len({t.record.identity.partition(":")[2] for t in writes}) > 1
    harmful = saves or any(_can_tear(several[p]) or _other_bytes(files, p) for p in paths)
    more = f" (and {count(len(paths) - 1, 'more file')})" if len(paths) > 1 else ""
    cause, advice = _guard(files.world, each)
    found = f"{ranks_text(ranks)} writing {name}{more}, by {done(first)}"
    if whole:
        found += "; each puts a file of its own there at once, so that it is whole, but the last one wins"
    elif apart:
        found += ", on several hosts: where these share the folder, it is one file"
    elif not harmful:
        found += "; what they write was not seen to differ, so that it may be right by luck"
    return Finding(
        check=SINGLE,
        severity="error" if harmful and not whole and not apart else "warning",
        ranks=ranks,
        subject=f"file {name}",
        expected="one rank to write a file",
        found=found,
        cause=cause,
        advice=advice,
        where=first.where,
        count=sum(len(several[p]) for p in paths),
        links=(*(f"file {p}" for p in paths[:10]), *stopped_by(writes)),
        proof=_proof(each[1:], first.where),
    )


def _by_a_library(writes: Sequence[Touch]) -> bool:
    """A library puts a file of each rank's own in that place: its cache, made for several processes."""
    return all(t.record.op == "rename" and t.record.library for t in writes)


def _guard(world: World, writes: Sequence[Touch]) -> tuple[str, str]:
    """What lets several ranks come here."""
    if len(writes) == len(world):
        return "every rank comes to this line", "Write on one rank only: if dist.get_rank() == 0."
    locals_ = {t.rank.joined.local_rank for t in writes}
    if len(locals_) == 1 and None not in locals_:
        local = locals_.pop()
        return (
            f"these ranks all have LOCAL_RANK {local}: there is one such rank on every node",
            "Let one rank of all write, by dist.get_rank() == 0 (RANK), and not by LOCAL_RANK.",
        )
    return "", "Let one rank write it, or give each rank a file of its own, with its rank in the name."


def _proof(touches: Iterable[Touch], but: CallSite | None) -> tuple[tuple[int, CallSite], ...]:
    return tuple((t.number, t.where) for t in touches if t.where is not None and t.where != but)


# --- a kill leaves the checkpoint before it whole


def atomic_save(files: Files, several: set[str]) -> Judged:
    """The verdict on saves that go straight over what they are to replace."""
    checked = 0
    over: dict[tuple[object, ...], list[Touch]] = defaultdict(list)
    for path in files.writes:
        for writes in _by_rank(files.writes[path]):
            kept = _checkpoints(files, path, writes)
            checked += len(kept)
            # What a rank finds there first may be another's, where several write it: that is a mistake of its own.
            for t in kept[1:] if path in several else kept:
                if t.record.op == "write" and t.record.existed and not _is_spare(files, path, writes, t):
                    over[t.number, t.where].append(t)
    findings = tuple(_in_place(touches) for touches in over.values())
    because = "" if checked else "no checkpoint was saved"
    return Judged(check=ATOMIC, checked=checked, findings=findings, skipped_because=because)


def _by_rank(touches: Sequence[Touch]) -> list[list[Touch]]:
    by_rank: dict[int, list[Touch]] = defaultdict(list)
    for t in sorted(touches, key=lambda t: t.start):
        by_rank[t.number].append(t)
    return list(by_rank.values())


def _checkpoints(files: Files, path: str, writes: list[Touch]) -> list[Touch]:
    """Of one rank's writes to a path, those that put a checkpoint there."""
    loaded = any(t.record.how in LOADS for t in files.reads.get(path, ()))
    saved = any(t.record.how in SAVES for t in writes)
    named = path.endswith((".pt", ".pth", ".ckpt"))
    found = []
    for t in writes:
        if t.record.how in SAVES:
            fits = is_checkpoint(t)
        elif t.record.op == "rename":
            fits = loaded or named
        else:  # where it was opened to be saved into, the save is on record itself
            fits = t.record.how == "open" and not saved and (loaded or named)
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
        t.rank is read.rank and t.record.site == read.record.site and 0 < t.start - read.start <= 2
        for path, touches in files.writes.items()
        if path != read.path
        for t in touches
    )


def _in_place(touches: list[Touch]) -> Finding:
    first = touches[0]
    name = shown(first)
    return Finding(
        check=ATOMIC,
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
