"""Ranks whose agent was killed before it could end them: they are ended in its place, as it would have."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

import psutil

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Process

PATIENCE = 5.0
"""Seconds that ranks have to end in, once they are asked to."""


class Ranks:
    """The processes that torchrun's agent has started as ranks, known again whatever becomes of their numbers."""

    def __init__(self) -> None:
        self._seen: dict[int, psutil.Process | None] = {}

    def see(self, processes: Iterable[Process]) -> None:
        """Take note of those that were started since the last time."""
        for process in processes:
            for launched in process.of(ev.Launched):
                if launched.pid not in self._seen:
                    self._seen[launched.pid] = _process(launched.pid)

    def end(self) -> None:
        """End them with what they have started, as far as it is in their process groups.

        What a rank has put into a session of its own is left alone, as
        torchrun leaves it.
        """
        ranks = [rank for rank in self._seen.values() if rank is not None and _runs(rank)]
        _signal(ranks, signal.SIGTERM)
        with contextlib.suppress(psutil.Error):
            psutil.wait_procs(ranks, timeout=PATIENCE)
        _signal([rank for rank in ranks if _runs(rank)], signal.SIGKILL)


def own_ranks(family: Iterable[psutil.Process], processes: Iterable[Process]) -> tuple[psutil.Process, ...]:
    """The ranks that a script has started itself, as far as they are in its session: there is no agent to end them.

    What else it has started, an upload of a checkpoint, goes on: it would without us.
    """
    pids = {process.pid for process in processes if process.last(ev.Joining) or process.last(ev.Joined)}
    found = []
    for process in family:
        with contextlib.suppress(OSError):
            if process.pid in pids and os.getsid(process.pid) == os.getsid(0):
                found.append(process)
    return tuple(found)


def _process(pid: int) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error, OSError):
        return psutil.Process(pid)
    return None


def _runs(rank: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        return bool(rank.is_running()) and rank.status() != psutil.STATUS_ZOMBIE
    return False


def _signal(ranks: Iterable[psutil.Process], number: int) -> None:
    for rank in ranks:
        with contextlib.suppress(OSError):
            os.killpg(rank.pid, number)  # the agent makes each the leader of a session
