"""Which processes of a run compute, without a word of it, while others wait for them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator

import psutil

from ddpcheck import evidence as ev
from ddpcheck.judging.device_waits import beside
from ddpcheck.judging.world import Process

SHARE = 0.2
"""Of one core, from which on a process computes. One that asks now and then for what it waits for takes less."""

OFTEN, SELDOM = 1.0, 10.0
"""Seconds between two looks, by the patience there is: the longer they are, the less is a short burst."""

_WAITS_ASLEEP = ("gloo", "fake")
"""Backends in which nothing that waits takes a core. In the others a rank may wait for a device by spinning."""


def period(patience: float) -> float:
    """Seconds between two looks, by the patience there is."""
    return min(SELDOM, max(OFTEN, patience / 30))


class Computing:
    """Looks at the processor time of this host's processes, and takes in what other hosts have told of theirs.

    A process computes where it, or what it has started, has used a core since
    the last look; and if it may wait by spinning, only if its main thread has
    come from one place to another meanwhile. Waiting in a collective is not
    to compute, whatever other threads do.
    """

    def __init__(self, patience: float, tell: Callable[[int, float], None] | None = None) -> None:
        self._period = period(patience)
        self._tell = tell
        """Puts on record which process it was, and when, for who judges elsewhere."""
        self._looked = float("-inf")
        self._used: dict[tuple[int, float], float] = {}
        """Processor time at the last look, by pid and the start of the process."""
        self._last: dict[tuple[str, int], float] = {}
        """When a process computed last, on the clock of its host: by host and pid."""

    def look(self, processes: Iterable[Process], now: float) -> None:
        """Take in what can be seen now; to be called often, and done at times."""
        if now - self._looked < self._period:
            return
        before, self._looked = self._looked, now
        processes, host = list(processes), socket.gethostname()
        for process in processes:
            for told in process.of(ev.Computed):
                if process.began is not None:
                    self._last[process.began.host, told.pid] = told.at
        here = [(p, p.began) for p in processes if p.began is not None and p.began.host == host]
        ours = {p.pid: p for p, _ in here if p.last(ev.Joining) or p.last(ev.Joined)}
        # Those that may join yet: what the launcher has started, and what has torch and is no rank's helper.
        apart = {*ours, *(one.pid for p, _ in here for one in p.of(ev.Launched))}
        apart |= {p.pid for p, began in here if began.argv and began.worker_of is None and began.parent not in ours}
        used, before_that = {}, self._used
        for pid in apart:
            found = _used(pid, apart)
            if found is None:
                continue
            key, seconds = found
            used[key] = seconds
            share = (seconds - before_that.get(key, seconds)) / (now - before)
            if share >= SHARE and (pid not in ours or _is_at_work(ours[pid], before)):
                self._last[host, pid] = now
                if self._tell is not None:
                    self._tell(pid, now)
        self._used = used

    def last(self, process: Process) -> float:
        """When a process computed last, on its own clock; at the beginning of time if it never did."""
        return self._last.get((process.began.host, process.pid), 0.0) if process.began is not None else 0.0

    def anybody(self, host: str) -> float:
        """When any process of a host did."""
        return max((at for (where, _), at in self._last.items() if where == host), default=0.0)


def _is_at_work(process: Process, since: float) -> bool:
    """Whether what it uses a core for is not waiting."""
    pulse, joined = process.last(ev.Pulse), process.last(ev.Joined)
    if pulse is not None and pulse.pending is not None:
        later = next((r for r in _after(process, pulse) if not beside(r)), None)
        if later is None and not _is_built(process, pulse.pending):
            return False
    if joined is None or joined.backend in _WAITS_ASLEEP:
        return True
    return pulse is not None and pulse.at > since


def _is_built(process: Process, number: int) -> bool:
    """Whether it is in a wrapper's constructor: the imports there may take long, and come before any collective."""
    call = next((r for r in reversed(process.records) if isinstance(r, ev.Call) and r.n == number), None)
    return call is not None and call.op == "ddp-construct"


def _after(process: Process, pulse: ev.Pulse) -> Iterator[ev.Record]:
    for record in reversed(process.records):
        if record is pulse:
            return
        yield record


def _used(pid: int, others: set[int]) -> tuple[tuple[int, float], float] | None:
    """The processor time of a process and what it has started, without the others; None if it is gone."""
    try:
        top = psutil.Process(pid)
        key, seconds = (pid, top.create_time()), seconds_of(top)
        below = top.children(recursive=True)
    except (psutil.Error, OSError):
        return None
    apart = others - {pid}
    for process in below:  # those that started a process come before it
        try:
            if process.pid in apart or process.ppid() in apart:
                apart.add(process.pid)
            else:
                seconds += seconds_of(process)
        except (psutil.Error, OSError):
            continue
    return key, seconds


def seconds_of(process: psutil.Process) -> float:
    """The processor time of a process, and of those that it has started and that have ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
