"""Which processes were ranks of one group: whoever joined it, whatever has started them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from signal import SIGTERM

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Moment, Process, Rank, Stretch, World

Exit = tuple[int | None, int | None]
"""Exit code, and signal."""


def exits_told(processes: Iterable[Process]) -> dict[tuple[str, int], Exit]:
    """How processes ended, as their parents have written down: by host and pid."""
    found: dict[tuple[str, int], Exit] = {}
    for process in processes:
        host = process.began.host if process.began else ""
        for child in process.of(ev.ChildEnded):
            found[host, child.pid] = (child.code, child.signal)
    return found


def _ended_alone(processes: Iterable[Process]) -> set[tuple[str, int]]:
    """The processes that ended before anybody had asked them to, as far as it is known: by host and pid."""
    processes = list(processes)
    stopped = {process.began.host: one.at for process in processes for one in process.of(ev.Stopped) if process.began}
    return {
        (process.began.host, child.pid)
        for process in processes
        for child in process.of(ev.ChildEnded)
        if process.began and child.asked is False and child.at < stopped.get(process.began.host, math.inf)
    }


def _silent(processes: Iterable[Process]) -> dict[tuple[str, int], float]:
    """For how many seconds no Python code had run in a process that was ended: by host and pid."""
    return {(p.began.host, one.pid): one.seconds for p in processes for one in p.of(ev.Silent) if p.began}


def _memory_kills(processes: Iterable[Process]) -> dict[str, int]:
    """How many processes the kernel has ended for want of memory, by host."""
    return {p.began.host: one.number for p in processes for one in p.of(ev.MemoryKills) if p.began}


def _stopped(processes: Iterable[Process]) -> Moment | None:
    """When ddpcheck began to end a run that was stuck."""
    for process in processes:
        for one in process.of(ev.Stopped):
            if (began := process.began) is not None:
                return Moment(at=one.at, host=began.host, wall=began.wall + one.at - began.at)
    return None


def worlds(processes: Iterable[Process], now: Moment | None = None) -> list[World]:
    """The default groups of a run, in the order in which they were made; groups of one process are none."""
    processes = list(processes)
    exits: Mapping[tuple[str, int], Exit] = exits_told(processes)
    first = _ended_alone(processes)
    stopped, silent, memory_kills = _stopped(processes), _silent(processes), _memory_kills(processes)
    groups: dict[str, list[Rank]] = defaultdict(list)
    for process in processes:
        if process.began is None or (process.began.worker_of is not None and not process.of(ev.Joined)):
            continue
        who = process.began.host, process.pid
        code, signal = exits.get(who, (None, None))
        end = stopped.on(process) if stopped is not None else math.inf
        lost = any(error.lost_peer and error.at > end for error in process.of(ev.Raised))
        for stretch in _stretches(process.until(end) if lost else process):
            rank = Rank(stretch, code, signal, who in first, silent.get(who, 0.0))
            if lost:  # it failed because ddpcheck had ended another rank of a hang, and would be waiting still
                rank.exit_code, rank.signal = None, SIGTERM
            rank.memory_kills = memory_kills.get(who[0])
            groups[stretch.joined.token].append(rank)
    for ranks in groups.values():
        for rank in ranks:
            rank.workers = [
                p
                for p in processes
                if p.began is not None
                and rank.process.began is not None
                and p.began.worker_of == rank.process.pid
                and p.began.host == rank.process.began.host
            ]
    found = [
        World(_one_each(ranks), ranks[0].joined.world_size, now, stopped)
        for ranks in groups.values()
        if ranks[0].joined.world_size > 1
    ]
    return sorted(found, key=lambda w: min(r.joined.at for r in w.ranks))


def _one_each(ranks: list[Rank]) -> list[Rank]:
    """The last to join as a rank counts: an elastic restart comes back as the same one."""
    return list({r.rank: r for r in sorted(ranks, key=lambda r: r.joined.at)}.values())


def _stretches(process: Process) -> list[Stretch]:
    """The memberships of a process: each from the end of the one before to its own."""
    found = []
    start = 0
    joins = process.of(ev.Joined)
    lefts = process.of(ev.Left)
    for place, joined in enumerate(joins):
        following = joins[place + 1].n if place + 1 < len(joins) else math.inf
        left = next((one.n for one in lefts if joined.n < one.n < following), None)
        # What comes after leaving still belongs to it, up to the next joining.
        last = place + 1 == len(joins)
        end = math.inf if last else (left + 1 if left is not None else following)
        found.append(Stretch(process, joined, start, end))
        start = int(end) if end != math.inf else 0
    return found
