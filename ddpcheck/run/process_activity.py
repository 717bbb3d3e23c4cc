"""When the processes of a run last did anything that the system counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from ddpcheck.judging.evidence_folder import SUFFIX
from ddpcheck.run.computing_processes import SHARE, period, seconds_of

Key = tuple[int, float]
"""A process: its number, and when it was started."""


class Activity:
    """Looks at what processes have computed, read and written, files of evidence aside.

    The system does not count what goes through a socket. A process that was
    started or has ended since the last look counts as well.
    """

    def __init__(self, evidence: Path, patience: float) -> None:
        self._evidence = evidence
        self._period = period(patience)
        self._looked = float("-inf")
        self._before: dict[Key, tuple[float, int]] = {}
        self._recorded = 0
        self.last = float("-inf")
        """When there was any, as far as it was looked at."""
        self.living: set[int] = set()
        """The processes that there were at the last look."""

    def look(self, family: Callable[[], Iterable[psutil.Process]], now: float) -> None:
        """Take in what there has been since the last look; to be called often, and done at times."""
        since = now - self._looked
        if since < self._period:
            return
        before, self._looked = self._before, now
        counted = {}
        for process in family():
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE:
                    counted[process.pid, process.create_time()] = seconds_of(process), _bytes(process)
        recorded = 0
        for file in self._evidence.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                recorded += file.lstat().st_size
        spent = [seconds - before[key][0] for key, (seconds, _) in counted.items() if key in before]
        moved = sum(number - before[key][1] for key, (_, number) in counted.items() if key in before)
        others = counted.keys() != before.keys()
        if before and (others or moved > recorded - self._recorded or max(spent, default=0.0) >= SHARE * since):
            self.last = now
        self._before, self._recorded, self.living = counted, recorded, {pid for pid, _ in counted}


def _bytes(process: psutil.Process) -> int:
    """What a process has read and written so far; 0 where that is not told, as on macOS."""
    try:
        counters = process.io_counters()
        return int(counters.read_chars + counters.write_chars)
    except (psutil.AccessDenied, AttributeError):
        return 0
