"""Ranks that ddpcheck itself has brought down: nothing of that is put down to the program."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from ddpcheck import evidence as ev
from ddpcheck.judging.membership import exits_told
from ddpcheck.judging.world import Process
from ddpcheck.vocabulary.wording import signal_name

_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


def brought_down(processes: Iterable[Process]) -> list[str]:
    """For each process that a probe of ours has ended, how: an exception out of our frames, or a crash in a look."""
    processes = list(processes)
    exits = exits_told(processes)
    found = [raised.text for process in processes for raised in process.of(ev.Raised) if raised.ours]
    for process in processes:
        look = process.last(ev.Looking)
        if look is None or look.over or process.began is None:
            continue
        _, number = exits.get((process.began.host, process.pid), (None, None))
        if number in _CRASHES:
            whose = f"rank {process.began.rank}" if process.began.rank is not None else f"process {process.pid}"
            found.append(f"{whose} was killed by {signal_name(number)} while ddpcheck read the memory of its tensors")
    return found
