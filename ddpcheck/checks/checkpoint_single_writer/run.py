"""Does one rank write a path?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ddpcheck.checks.checkpoint_single_writer import guarded
from ddpcheck.judging.file_history import SAVES, Files, Touch, done, files_of, shown, stopped_by
from ddpcheck.judging.several_writers import on_shared_lines, writes, written_by_several
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, ranks_text

ON_ONE = "Write on one rank only: if dist.get_rank() == 0."


def judge(world: World) -> Judged:
    """Look at who writes each file."""
    return judge_files(files_of(world))


def judge_files(files: Files, saves: bool = False) -> Judged:
    """The same of files alone; ``saves`` where all of them are a checkpoint's."""
    several = {p: on_shared_lines(touches) for p, touches in written_by_several(files, saves).items()}
    own = {p for p, touches in several.items() if not saves and _is_a_librarys_own(files, p, touches)}
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, touches in several.items():
        if path not in own:
            first = touches[0].where
            place = (first.file, first.function) if first is not None else None
            groups[place, frozenset(t.number for t in touches)].append(path)
    findings = tuple(_several(files, {p: several[p] for p in paths}, saves) for paths in groups.values())
    checked = sum(bool(writes(files, path)) for path in files.writes if path not in own)
    because = "ddpcheck saw no file being written" + (", but by libraries for themselves" if own else "")
    return Judged(checked=checked, of=len(files.writes), findings=findings, skipped_because="" if checked else because)


def _is_a_librarys_own(files: Files, path: str, writes: Sequence[Touch]) -> bool:
    """Whether a library keeps a file for itself on all ranks, such as a run's settings, and harms nothing by that."""
    return all(guarded.within_meetings(files, t) for t in writes) and (
        _by_a_library(writes) or not (_can_tear(files, path, writes) or _other_bytes(files, path))
    )


def _can_tear(files: Files, path: str, writes: Sequence[Touch]) -> bool:
    """Whether what is written at a time by several may be neither the one nor the other: checkpoints, and renames."""
    return files.is_checkpoint(path) or any(t.record.how in SAVES or t.record.op == "rename" for t in writes)


def _other_bytes(files: Files, path: str) -> bool:
    """Whether the ranks that have written a small file, once each, were seen to put other bytes there."""
    seen = files.contents.get(path, [])
    once = len(files.writes[path]) == len({t.number for t in files.writes[path]})
    return once and path not in files.appended and len({t.record.identity for t in seen}) > 1


def _several(files: Files, several: dict[str, list[Touch]], saves: bool) -> Finding:
    """One function that several ranks go through, and what each of them writes there."""
    paths = sorted(several, key=lambda p: several[p][0].start)
    lasting = [p for p in paths if p not in files.removals] or paths
    path = next((p for p in lasting if files.is_checkpoint(p)), lasting[0])
    writes = [t for p in paths for t in several[p]]
    first = min(writes, key=lambda t: (t.number, t.start))
    name = shown(first, path)
    ranks = tuple(sorted({t.number for t in writes}))
    each = [next(t for t in writes if t.number == r) for r in ranks]
    whole = all(_by_a_library(several[p]) for p in paths)
    apart = len(files.hosts) > 1 and len({t.record.identity.partition(":")[2] for t in writes}) > 1
    torn = saves or any(_can_tear(files, p, several[p]) for p in paths)
    differing = any(_other_bytes(files, p) for p in paths)
    by_libraries = all(t.record.library for t in writes)
    more = f" (and {count(len(paths) - 1, 'more file')})" if len(paths) > 1 else ""
    cause, advice = _guard(files, each)
    found = f"{ranks_text(ranks)} writing {name}{more}, by {done(first)}"
    if whole:
        found += "; each puts a file of its own there at once, so that it is whole, but the last one wins"
    elif apart:
        found += ", on several hosts: where these share the folder, it is one file"
    elif differing and not torn:
        found += "; they put different bytes there"
    elif not torn:
        found += "; what they write was not seen to differ, so that it may be right by luck"
    harmful = torn or (differing and not by_libraries)
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
        count=len(paths),
        links=(*(f"file {p}" for p in paths[:10]), *stopped_by(writes)),
        proof=_proof(writes, first.where),
    )


def _by_a_library(writes: Sequence[Touch]) -> bool:
    """A library puts a file of each rank's own in that place: its cache, made for several processes."""
    return all(t.record.op == "rename" and t.record.library for t in writes)


def _guard(files: Files, writes: Sequence[Touch]) -> tuple[str, str]:
    """What lets these ranks write, one write of each, and what to do about it."""
    first = writes[0]
    if guarded.within_meetings(files, first):
        return (
            "a library writes it within this call, on each of these ranks",
            "By the settings of the library, let one rank write it, or give each rank a folder of its own.",
        )
    if any(t.where != first.where for t in writes):
        return "each of these ranks writes it at a line of its own", _OF_ITS_OWN
    if all(t.record.library for t in writes):
        return (
            "a library writes it, called at this line on each of these ranks",
            "Call it on one rank only, or let the library give each rank a folder of its own.",
        )
    if len(writes) == len(files.world):
        return "every rank comes to this line", ON_ONE + guarded.place(files, writes) + guarded.wait(files, first)
    locals_ = {t.rank.joined.local_rank for t in writes}
    if len(locals_) == 1 and None not in locals_:
        local = locals_.pop()
        return (
            f"these ranks all have LOCAL_RANK {local}: there is one such rank on every node",
            "Let one rank of all write, by dist.get_rank() == 0 (RANK), and not by LOCAL_RANK.",
        )
    return "", _OF_ITS_OWN


_OF_ITS_OWN = "Let one rank write it, or give each rank a file of its own, with its rank in the name."


def _proof(writes: Iterable[Touch], but: CallSite | None) -> tuple[tuple[int, CallSite], ...]:
    """The other lines that write it, each with the first rank there."""
    lines: dict[CallSite, int] = {}
    for t in sorted(writes, key=lambda t: (t.number, t.start)):
        if t.where is not None and t.where != but:
            lines.setdefault(t.where, t.number)
    return tuple((rank, where) for where, rank in lines.items())[:6]
