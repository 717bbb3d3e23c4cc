"""When a process was last seen to get on with what it does."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging.device_waits import beside
from ddpcheck.judging.world import Process


class Progress:
    """Looks at what processes write down, each record once.

    A record is progress, but for those of threads beside the main one. Where
    the main thread is, which pulses tell, is progress if it has not been there
    since: a loop that waits for something comes to the same places again.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def last(self, process: Process) -> float:
        """When it was, on the clock of the process; the beginning of its record, if there is none."""
        known = self._known.setdefault(process.name, _Known())
        known.see(process)
        return known.at


class _Known:
    """What was seen of one process."""

    def __init__(self) -> None:
        self.at = 0.0
        self._taken = 0
        self._places: set[tuple[int, str]] = set()

    def see(self, process: Process) -> None:
        for record in process.since(self._taken):
            if isinstance(record, ev.Pulse):
                place = record.site, record.doing
                if record.pending is None and place not in self._places:
                    self._places.add(place)
                    self.at = max(self.at, record.at)
            elif not beside(record):
                self._places.clear()
                self.at = max(self.at, record.at)
        self._taken = process.taken
