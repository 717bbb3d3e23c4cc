"""Does every rank read a file only when its write is over, and does none take it away before the last read?

What counts is the order that the program enforces by its collectives, not how
it happened to go. Judge of checkpoint-read-after-write.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_read_after_write.file_queries import Asked
from ddpcheck.judging.file_history import LOADS, NEVER, SAVES, Files, Touch, done, is_lock, is_state, shown, stopped_by
from ddpcheck.judging.happens_before import Order
from ddpcheck.judging.world import Judged
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import ranks_text

CHECK = "checkpoint-read-after-write"
MOST = 5_000
"""Paths that are looked at."""
TOLD = 100
"""Races of one line that its finding is made from."""


class Race(NamedTuple):
    """What one rank puts or takes away, and a read on another rank that nothing keeps apart from it."""

    change: Touch
    read: Touch
    again: bool
    """An earlier write of the same rank does come before the read: it is a later one that comes too soon."""
    sure: bool = True
    """Something comes of it that is not the same on all ranks, or may not be."""


def judge(files: Files, several: set[str]) -> tuple[Judged, set[str]]:
    """The verdict, and the paths that are read too soon; those that several ranks write are told of already."""
    order, asked_for = Order(files.world), Asked(files)
    written, taken = [], []
    checked, unordered = 0, ""
    for path in sorted(files.everything):
        if is_lock(path):
            continue
        writes = files.written_to(path)
        reads = [t for t in files.reads.get(path, ()) if t.record.existed or t.record.how in LOADS]
        asked = [t for t in files.asked_for(path) if _matters(files, path)]
        removals = files.removed_from(path)
        if not _between_ranks(writes + removals, reads + asked):
            continue
        if path in several:
            unordered = "several ranks wrote what others read, see checkpoint-single-writer"
            continue
        if checked == MOST:
            break
        checked += 1
        races = _races(order, asked_for, writes, [*reads, *asked])
        races = [weighed for race in races if (weighed := _weighed(files, asked_for, race)) is not None]
        written += races
        if not races:
            taken += _races(order, asked_for, removals, reads)
    findings = [*_findings(written, _too_soon), *_findings(taken, _taken_away)]
    because = "" if checked else unordered or "no rank read a file that another one had written or removed"
    judged = Judged(check=CHECK, checked=checked, findings=tuple(findings), skipped_because=because)
    return judged, {race.read.path for race in written}


def _matters(files: Files, path: str) -> bool:
    """Whether it is a file to load from, so that to ask for it decides something."""
    return path in files.reads or any(t.record.how in SAVES or t.record.op == "rename" for t in files.writes[path])


def _between_ranks(changes: Sequence[Touch], reads: Sequence[Touch]) -> bool:
    return any(c.rank is not r.rank for c in changes for r in reads)


def _races(order: Order, asked: Asked, changes: Sequence[Touch], reads: Sequence[Touch]) -> list[Race]:
    """For each read, the first change on another rank that it is not kept apart from."""
    by_rank: dict[int, list[Touch]] = defaultdict(list)
    for change in sorted(changes, key=lambda t: t.end):
        by_rank[change.number].append(change)
    found = []
    for read in reads:
        if read.record.op == "query" and asked.is_wait(read):
            continue
        for rank, theirs in by_rank.items():
            if rank != read.number:
                race = _race(order, asked, theirs, read)
                if race is not None:
                    found.append(race)
    return found


def _race(order: Order, asked: Asked, changes: list[Touch], read: Touch) -> Race | None:
    """Of one rank's changes, in their order, those up to some one are over before the read: what of the next?"""

    def is_before(change: Touch) -> bool:
        if change.record.locked and read.record.locked:
            return True
        if order.enforced(change.number, change.end, read.number, read.start):
            return True
        return asked.has_waited_for(change, read)

    low, high = 0, len(changes)
    while low < high:
        middle = (low + high) // 2
        if is_before(changes[middle]):
            low = middle + 1
        else:
            high = middle
    if low == len(changes):
        return None
    change = changes[low]
    if order.enforced(read.number, read.end, change.number, change.start):
        return None
    return Race(change, read, low > 0 and read.record.existed)


def _weighed(files: Files, asked: Asked, race: Race) -> Race | None:
    """The race, and whether it is sure that it matters; nothing where it is sure that it does not."""
    read = race.read
    if _is_any_version_right(files, read.path) and not asked.leads_to_load(read):
        # Whoever reads it gets the whole of some version; there may be none yet.
        looked = any(q.rank is read.rank and q.start < read.start for q in files.queries.get(read.path, ()))
        if race.again or (read.record.op == "read" and looked):
            return None
        return race._replace(sure=False)
    if read.record.op == "query":
        settled = asked.is_settled(read)
        return None if settled == "yes" else race._replace(sure=settled == "no")
    return race


def _is_any_version_right(files: Files, path: str) -> bool:
    """Whether a file is whole whenever it is there, is read, and by none of its names and readers the state of a model.

    Such are the heartbeats that each rank leaves for the others.
    """
    writes = files.written_to(path)
    reads = files.reads.get(path, ())
    return (
        bool(writes)
        and bool(reads)
        and not any(map(is_state, reads))
        and all(t.record.op == "rename" and t.path == path for t in writes)
        and not any(map(is_state, writes))
        and not any(is_state(before) for t in writes for before in files.writes.get(t.record.path, ()))
    )


# --- findings


def _findings(races: Sequence[Race], tell: Callable[[list[Race]], Finding]) -> list[Finding]:
    """One finding for all races with the same change in the script."""
    groups: dict[tuple[object, ...], list[Race]] = defaultdict(list)
    for race in races:
        groups[race.change.number, race.change.where].append(race)
    found = []
    for group in groups.values():
        moments = {(r.read.number, r.read.start) for r in group}
        found.append(replace(tell(sorted(group[:TOLD], key=_telling)), count=len(moments)))
    return found


def _telling(race: Race) -> tuple[bool, int, int, int]:
    """What is sure; who does not find it makes it; loads, other reads, and questions; the lowest rank, the first."""
    record = race.read.record
    kind = 0 if _makes_it(race) else 1 if record.how in LOADS else 2 if record.op == "read" else 3
    return not race.sure, kind, race.read.number, race.read.start


def _makes_it(race: Race) -> bool:
    """Whether both ranks have asked for the file at one line, and one that has not found it goes on to write it."""
    change, asked = race.change, race.read
    if asked.record.op != "query":
        return False
    met = max((call.n for call in change.rank.of(ev.Call) if call.n < change.start), default=0)
    return any(
        r.op == "query" and not r.existed and r.path == change.record.path and met < r.n < change.start
        for r in change.rank.of(ev.File)
        if change.rank.where(r.site) == asked.where
    )


def _too_soon(races: list[Race]) -> Finding:
    first = races[0]
    change, read = first.change, first.read
    name = shown(read)
    readers = tuple(sorted({r.read.number for r in races}))
    writer = f"{done(change)} on rank {change.number}"
    reading = "the question whether it is there" if read.record.op == "query" else done(read)
    cause = ""
    advice = "Let all ranks meet between the two: dist.barrier() after the save, and before the load."
    if change.end == NEVER:
        cause = (
            f"thread {change.record.thread} writes it: a collective of the main thread does not wait for that thread"
        )
        advice = f"Join the thread (or take its future's result) on rank {change.number}, and then call dist.barrier()."
    elif first.again:
        cause = "it is written anew while another rank may still be at the copy before"
        advice = "Let all ranks meet after the load: dist.barrier() before the file is written again."
    elif _makes_it(first):
        cause = "each rank that does not find the file makes it: how many do is a matter of luck"
        advice = "Make it on one rank, and let the others wait for that at dist.barrier()."
    elif read.record.op == "query":
        cause = "what a rank finds depends on which of them is faster, so that ranks may decide differently"
        advice = "Ask on one rank and broadcast the answer, or call dist.barrier() before asking."
    return Finding(
        check=CHECK,
        severity="error" if first.sure else "warning",
        ranks=readers,
        subject=f"file {name}",
        expected=f"{name} to be whole before another rank reads it, in whatever order the ranks run",
        found=f"nothing between {writer} and {reading} on {ranks_text(readers)} that keeps one after the other",
        cause=cause,
        advice=advice,
        where=read.where,
        links=_links(races),
        proof=_proof([change, *(r.read for r in races)], read.where),
    )


def _taken_away(races: list[Race]) -> Finding:
    first = races[0]
    change, read = first.change, first.read
    name = shown(read)
    readers = tuple(sorted({r.read.number for r in races}))
    return Finding(
        check=CHECK,
        severity="error",
        ranks=(change.number,),
        subject=f"file {name}",
        expected=f"{name} to stay until every rank has read it, in whatever order the ranks run",
        found=f"nothing between {done(read)} on {ranks_text(readers)} and {done(change)} on rank {change.number} that "
        "keeps one after the other",
        advice="Let all ranks meet between the two: dist.barrier() after the load, and before the file is taken away.",
        where=change.where,
        links=_links(races),
        proof=_proof([r.read for r in races], change.where),
    )


def _links(races: Sequence[Race]) -> tuple[str, ...]:
    """The files; the wrappers that were then loaded from them; and the end, where ranks went different ways."""
    found = {f"file {r.read.path}" for r in races[:5]}
    apart = any(r.read.record.op == "query" and r.read.record.existed != _found_it(r) for r in races)
    paths = {r.read.record.path for r in races}
    for rank in {rank.rank: rank for r in races for rank in (r.change.rank, r.read.rank)}.values():
        loads = [r.n for r in rank.of(ev.File) if r.how in LOADS and r.path in paths]
        following = [s for s in rank.of(ev.StateLoaded) if loads and s.n > loads[0] and s.wrapper is not None]
        found.update(f"wrapper {s.wrapper}" for s in following[:1])
    return (*sorted(found), *(("stop",) if apart else stopped_by([r.read for r in races])))


def _found_it(race: Race) -> bool:
    """Whether the rank that makes the file has found it at the line where the other one asks."""
    own = [r for r in race.change.rank.of(ev.File) if r.op == "query" and r.path == race.read.record.path]
    fitting = [r for r in own if race.change.rank.where(r.site) == race.read.where]
    return fitting[-1].existed if fitting else race.read.record.existed


def _proof(touches: Sequence[Touch], but: CallSite | None) -> tuple[tuple[int, CallSite], ...]:
    found: dict[tuple[int, CallSite], None] = {}
    for t in touches:
        if t.where is not None and t.where != but:
            found[t.number, t.where] = None
    return tuple(found)[:6]
