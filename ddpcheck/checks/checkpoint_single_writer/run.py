"""Does one rank write a path?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ddpcheck.checks.checkpoint_single_writer import guarded
from ddpcheck.judging.file_history import SAVES, Files, Touch, done, files_of, is_checkpoint, shown, stopped_by
from ddpcheck.judging.several_writers import writes, written_by_several
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, ranks_text

ON_ONE = "Write on one rank only: if dist.get_rank() == 0."


def judge(world: World) -> Judged:
    """Look at who writes each file."""
    return judge_files(files_of(world))


def judge_files(files: Files, saves: bool = False) -> Judged:
    """The same of files alone; ``saves`` where all of them are a checkpoint's."""
    several = written_by_several(files, saves)
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, touches in several.items():
        first = touches[0].where
        place = (first.file, first.function) if first is not None else None
        groups[place, frozenset(t.number for t in touches)].append(path)
    findings = tuple(_several(files, {p: several[p] for p in paths}, saves) for paths in groups.values())
    checked = sum(bool(writes(files, path)) for path in files.writes)
    because = "" if checked else "no file was written"
    return Judged(checked=checked, findings=findings, skipped_because=because)


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
    if advice == ON_ONE:
        advice += guarded.place(each[0]) + guarded.wait(files, each[0])
    found = f"{ranks_text(ranks)} writing {name}{more}, by {done(first)}"
    if whole:
        found += "; each puts a file of its own there at once, so that it is whole, but the last one wins"
    elif apart:
        found += ", on several hosts: where these share the folder, it is one file"
    elif not harmful:
        found += "; what they write was not seen to differ, so that it may be right by luck"
    return Finding(
        rule="several-writers",
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
        return "every rank comes to this line", ON_ONE
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
