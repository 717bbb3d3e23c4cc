"""Events in columns: a million of them in memory, thinned where there are too many."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Event(NamedTuple):
    """One stretch of time, or several that were merged."""

    kind: int
    start: int
    length: int
    label: int
    number: int
    times: int = 1
    """How many it stands for."""
    busy: int = 0
    """What these took without the time between them; of one event, its length."""


ROWS = 4_096
"""Events that are put into the columns together, which is quicker."""


class Columns:
    """Events by their columns; times in microseconds."""

    NAMES = ("kinds", "starts", "lengths", "labels", "numbers", "counts", "busy")

    def __init__(self) -> None:
        self.kinds = array("B")
        self.starts = array("q")
        self.lengths = array("q")
        self.labels = array("i")
        self.numbers = array("q")
        self.counts = array("I")
        self.busy = array("q")

        self._rows: list[tuple[int, int, int, int, int, int, int]] = []
        """The newest ones, which are not in the columns yet."""

    def __len__(self) -> int:
        return len(self.kinds) + len(self._rows)

    def settle(self) -> None:
        """Put all of them into the columns, which nothing else may be asked of before."""
        if self._rows:
            for name, values in zip(self.NAMES, zip(*self._rows, strict=True), strict=True):
                getattr(self, name).extend(values)
            self._rows = []

    def __iter__(self) -> Iterator[Event]:
        self.settle()
        return map(Event, *(getattr(self, name) for name in self.NAMES))

    def add(
        self, kind: int, start: int, length: int, label: int, number: int, count: int = 1, busy: int | None = None
    ) -> None:
        """Take one up."""
        self._rows.append((kind, start, length, label, number, count, length if busy is None else busy))
        if len(self._rows) >= ROWS:
            self.settle()

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(*event)

    def sort(self) -> None:
        """By their beginnings; of two at once, the longer first, so that what is inside comes later."""
        self.settle()
        starts, lengths = self.starts, self.lengths
        order = sorted(range(len(self)), key=lambda place: (starts[place], -lengths[place]))
        for name in self.NAMES:
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, [column[place] for place in order]))

    def shift(self, by: int) -> None:
        """Move all of them in time."""
        if by:
            self.starts = array("q", [start + by for start in self.starts])

    def part(self, first: int, last: int) -> Iterator[Event]:
        """Those from one place up to another."""
        return map(Event, *(getattr(self, name)[first:last] for name in self.NAMES))


AROUND = 400
"""Events on both sides of a finding that are kept as they are."""


def thinned(columns: Columns, most: int, near: Sequence[int], generic: Sequence[int]) -> Columns:
    """At most about so many: the last ones and those around the moments of ``near`` as they are, the others merged.

    What is merged has the labels of ``generic``, by kind.
    """
    columns.sort()
    tail = len(columns) - most // 2
    if tail <= 0:
        return columns
    kept = _spans_of(columns, near, tail)
    result = Columns()
    first, last = columns.starts[0], columns.starts[tail]
    width = max(1, (last - first) // max(1, most // 2 // max(1, len(set(columns.kinds)))))
    place = 0
    for begin, end in [*kept, (tail, len(columns))]:
        _merge(columns.part(place, begin), width, generic, result)
        result.extend(columns.part(begin, end))
        place = end
    result.settle()
    return result


def _spans_of(columns: Columns, near: Sequence[int], tail: int) -> list[tuple[int, int]]:
    """The places around these moments, as far as they come before the tail, without overlaps."""
    found: list[tuple[int, int]] = []
    for at in sorted(near):
        middle = bisect_left(columns.starts, at)
        begin, end = max(0, middle - AROUND), min(tail, middle + AROUND)
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif begin < end:
            found.append((begin, end))
    return found


def _merge(events: Iterable[Event], width: int, generic: Sequence[int], result: Columns) -> None:
    """Put those of one kind together that begin in the same stretch of this width."""
    known: dict[tuple[int, int], list[int]] = {}
    for event in events:
        bucket = (event.start // width, event.kind)
        end = event.start + event.length
        merged = known.get(bucket)
        if merged is None:
            known[bucket] = [event.start, end, event.label, event.number, event.times, event.busy]
        else:
            merged[1] = max(merged[1], end)
            if merged[2] != event.label:
                merged[2] = generic[event.kind]
            merged[3] = event.number
            merged[4] += event.times
            merged[5] += event.busy
    for (_, kind), (start, end, label, number, count, busy) in known.items():
        result.add(kind, start, end - start, label, number, count, busy)
