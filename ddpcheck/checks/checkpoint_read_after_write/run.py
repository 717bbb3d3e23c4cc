"""Does every rank read a file only when its write is over, and does none take it away before the last read?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_read_after_write import asynchronous
from ddpcheck.judging.file_history import LOADS, NEVER, Touch, done, shown, stopped_by
from ddpcheck.judging.file_races import Race, Races, races_of
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import ranks_text

TOLD = 100
"""Races of one line that its finding is made from."""


def judge(world: World) -> Judged:
    """Report the races between the ranks' reads and writes."""
    races, early = judge_races(races_of(world)), asynchronous.judge(world)
    checked = races.checked + early.checked
    because = "" if checked else races.skipped_because
    return Judged(checked=checked, findings=(*races.findings, *early.findings), skipped_because=because)


def judge_races(found: Races) -> Judged:
    """The same of these races alone."""
    findings = [*_findings(found.written, _too_soon), *_findings(found.taken, _taken_away)]
    because = "ddpcheck saw no rank read or check for a file that another rank had written or removed"
    if found.unordered:
        because = "ddpcheck compared no access: several ranks wrote what others read, see checkpoint-single-writer"
    because = "" if found.checked else because
    return Judged(checked=found.checked, findings=tuple(findings), skipped_because=because)


def _findings(races: Sequence[Race], tell: Callable[[list[Race]], Finding]) -> list[Finding]:
    """One finding for all races with the same change in the script."""
    groups = by_key(((race.change.number, race.change.where), race) for race in races)
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
    found = f"{done(read)} on {ranks_text(readers)} does not wait for {writer}"
    if read.record.op == "query":
        found = f"{ranks_text(readers)} {'asks' if len(readers) == 1 else 'ask'} whether {name} is there, and nothing "
        found += f"makes that wait for {writer}"
    cause = ""
    advice = "Let all ranks meet between the two: dist.barrier() after the save, and before the load."
    if change.end == NEVER:
        cause = (
            f"thread {change.record.thread} writes it: a collective of the main thread does not wait for that thread"
        )
        advice = f"Join the thread (or take its future's result) on rank {change.number}, and then call dist.barrier()."
    elif _passes_a_queued_call(change, read):
        cause = _QUEUED
    elif first.again:
        cause = "it is written anew while another rank may still be at the copy before"
        advice = "Let all ranks meet after the load: dist.barrier() before the file is written again."
    elif _makes_it(first):
        cause = "each rank that does not find the file makes it: how many do is a matter of luck"
        advice = "Make it on one rank, and let the others wait for that at dist.barrier()."
    elif read.record.op == "query":
        cause = "what a rank finds depends on which of them is faster: in some runs the ranks go different ways here"
        advice = "Ask on one rank and broadcast the answer, or call dist.barrier() before asking."
        if answers := _answers(first):
            found += f"; {answers}"
            cause = f"{ranks_text([read.number])} asked before {ranks_text([change.number])} was done"
    return Finding(
        rule="unsynchronised-file-check" if read.record.op == "query" else "unsynchronised-read",
        severity="error" if first.sure else "warning",
        ranks=readers,
        subject=f"file {name}",
        expected=f"{name} to be whole before another rank reads it, in whatever order the ranks run",
        found=found,
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
        rule="unsynchronised-removal",
        ranks=(change.number,),
        subject=f"file {name}",
        expected=f"{name} to stay until every rank has read it, in whatever order the ranks run",
        found=f"{done(change)} on rank {change.number} does not wait for {done(read)} on {ranks_text(readers)}",
        cause=_QUEUED if _passes_a_queued_call(read, change) else "",
        advice="Let all ranks meet between the two: dist.barrier() after the load, and before the file is taken away.",
        where=change.where,
        links=_links(races),
        proof=_proof([r.read for r in races], change.where),
    )


_QUEUED = (
    "a collective stands between the two, and was only queued on the GPU: the rank went on before it was done, since "
    "under NCCL it holds up the device and not the program"
)


def _passes_a_queued_call(first: Touch, second: Touch) -> bool:
    """Whether the second rank came here before its device had finished a call that stands between the two."""
    following = next((seen for seen in second.rank.of(ev.HostAhead) if seen.n > second.start), None)
    if following is None or following.n != second.start + 1:
        return False
    behind = {(call.group, call.number) for call in first.rank.of(ev.Call) if call.n > first.end}
    under_way = set(following.calls)
    return any(call.n in under_way and (call.group, call.number) in behind for call in second.rank.of(ev.Call))


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


def _answers(race: Race) -> str:
    """What the two ranks have found at the line, and which of them has loaded it then; empty where it was the same."""
    asked, change = race.read, race.change
    if asked.record.existed or not _found_it(race):
        return ""
    loads = any(r.how in LOADS and r.path == asked.record.path and r.n > change.start for r in change.rank.of(ev.File))
    return (
        f"here rank {asked.number} did not find it and went on without, and rank {change.number} found it"
        f"{' and loaded it' if loads else ''}"
    )


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
