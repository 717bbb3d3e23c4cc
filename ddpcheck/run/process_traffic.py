"""When the processes of a run last read or wrote anything: a file, a pipe, their output."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from ddpcheck.judging.evidence_folder import SUFFIX
from ddpcheck.run.computing_processes import period


class Traffic:
    """Looks at what processes have read and written, files of evidence aside.

    The system does not count what goes through a socket. A process that was
    started or has ended since the last look counts as well.
    """

    def __init__(self, evidence: Path, patience: float) -> None:
        self._evidence = evidence
        self._period = period(patience)
        self._looked = float("-inf")
        self._before: dict[tuple[int, float], int] = {}
        self._recorded = 0
        self.last = float("-inf")
        """When there was any, as far as it was looked at."""
        self.living: set[int] = set()
        """The processes that there were at the last look."""

    def look(self, family: Callable[[], Iterable[psutil.Process]], now: float) -> None:
        """Take in what there has been since the last look; to be called often, and done at times."""
        if now - self._looked < self._period:
            return
        first, self._looked = not self._before, now
        counted = {}
        for process in family():
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE:
                    counted[process.pid, process.create_time()] = _bytes(process)
        recorded = sum(file.stat().st_size for file in self._evidence.glob(f"*{SUFFIX}"))
        moved = sum(number - self._before.get(key, 0) for key, number in counted.items())
        if not first and (counted.keys() != self._before.keys() or moved > recorded - self._recorded):
            self.last = now
        self._before, self._recorded, self.living = counted, recorded, {pid for pid, _ in counted}


def _bytes(process: psutil.Process) -> int:
    """What a process has read and written so far; 0 where that is not told, as on macOS."""
    try:
        counters = process.io_counters()
        return int(counters.read_chars + counters.write_chars)
    except (psutil.AccessDenied, AttributeError):
        return 0
