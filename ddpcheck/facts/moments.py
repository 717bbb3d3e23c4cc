"""The windows of each optimizer that a rank has looked at, with what its pieces of tensors held in each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ddpcheck.evidence import WIDTH, Contributions, Layout, Piece, Pieces, Values
from ddpcheck.facts import sketches
from ddpcheck.facts.sketches import Numbers
from ddpcheck.judging.world import Rank

AT_STEP = -1
"""In the place of the steps so far, of what was read on entry to a step."""


class Value(NamedTuple):
    """What a piece held at a moment."""

    sketch: Numbers
    """Not a number where nobody could make one."""
    digest: bytes
    layout: Layout | None
    """Of a gradient that lies otherwise than its parameter; None where it lies alike."""


class Contribution(NamedTuple):
    """What one backward() has contributed to a piece, before anything was reduced."""

    backward: int
    site: int
    how: str
    sketch: Numbers
    whole: bool
    """It is that of a whole tensor, of which the piece is a part."""
    layout: Layout | None
    """Of a DTensor; the sketch is of the part that it says."""
    version: int
    calls: Sequence[tuple[str, str, int | None]]
    """What the program has exchanged in that backward() before: operation, group and peer."""


class Window:
    """One step of an optimizer, and what came before it since the last one."""

    def __init__(
        self, step: Values, read: Mapping[int, tuple[int, Values, int]], backwards: Sequence[Contributions]
    ) -> None:
        self.optimizer, self.number = step.optimizer, step.number
        self.places = dict(zip(step.pieces, step.places, strict=True))
        """By piece, the place of its parameter among the optimizer's."""
        self.step, self.backwards = step, backwards
        """What it was made on, and what the backward() calls before it have contributed, as they are on record."""
        self.stepped: Values | None = None
        self._read = read

    @property
    def is_idle(self) -> bool:
        """Whether there was no backward() since the step before."""
        return self.step.backwards == self.step.since[0]

    @cached_property
    def before(self) -> dict[int, Value]:
        """W: what parameters held at the first forward, or on entry to the step."""
        found = {}
        for piece in self.places:
            step, record, place = self._read.get(piece, (-2, self.step, 0))
            if step == AT_STEP or step >= self.step.since[1]:
                found[piece] = _value(record, place)
        return found

    @cached_property
    def contributions(self) -> dict[int, list[Contribution]]:
        """C, by piece: also of those that another optimizer owns, or that of another rank."""
        found: dict[int, list[Contribution]] = {}
        for record in self.backwards:
            for piece, one in _contributed(record):
                found.setdefault(piece, []).append(one)
        return found

    @cached_property
    def gradients(self) -> dict[int, Value]:
        """G: what the step was made on."""
        return _values(self.step)

    @cached_property
    def after(self) -> dict[int, Value]:
        """U: what parameters held when it had returned."""
        return _values(self.stepped) if self.stepped is not None else {}


class Moments(NamedTuple):
    """All of one rank."""

    pieces: dict[int, Piece]
    windows: dict[int | None, list[Window]]
    """By optimizer, in order."""


_Known = tuple[dict[int, Piece], dict[tuple[int | None, int], Window]]
_OF_RANKS: WeakKeyDictionary[Rank, _Known] = WeakKeyDictionary()


def window(rank: Rank, optimizer: int, number: int) -> Window | None:
    """The window of one step of a rank's optimizer; None if it was not looked at."""
    return _known(rank)[1].get((optimizer, number))


def pieces(rank: Rank) -> dict[int, Piece]:
    """The pieces of tensors that a rank holds, by number."""
    return _known(rank)[0]


def windows(rank: Rank) -> dict[int | None, list[Window]]:
    """Those of a rank, by optimizer, in order."""
    found: dict[int | None, list[Window]] = {}
    for one in _known(rank)[1].values():
        found.setdefault(one.optimizer, []).append(one)
    return found


def _known(rank: Rank) -> _Known:
    if rank not in _OF_RANKS:
        found = of(rank)
        windows = {(one.optimizer, one.number): one for its in found.windows.values() for one in its}
        _OF_RANKS[rank] = found.pieces, windows
    return _OF_RANKS[rank]


def of(rank: Rank) -> Moments:
    """What a rank has on record of the windows that it has looked at."""
    pieces = {one.piece: one for record in rank.of(Pieces) for one in record.pieces}
    windows: dict[int | None, list[Window]] = {}
    read: dict[int, tuple[int, Values, int]] = {}
    """By piece, its value at the last forward, and the steps of all before that."""
    backwards = rank.of(Contributions)
    numbers = [record.backward for record in backwards]
    for record in rank.of(Values):
        if record.at_moment == "W":
            steps = record.number if record.optimizer is None else AT_STEP
            read.update((piece, (steps, record, place)) for place, piece in enumerate(record.pieces))
        elif record.at_moment == "G":
            since, _ = record.since
            between = backwards[bisect_right(numbers, since) : bisect_right(numbers, record.backwards)]
            windows.setdefault(record.optimizer, []).append(Window(record, dict(read), between))
        elif record.optimizer in windows and (window := windows[record.optimizer][-1]).number == record.number:
            window.stepped = record
            window.places = dict(zip(record.pieces, record.places, strict=True))
    return Moments(pieces, windows)


def _contributed(record: Contributions) -> Iterator[tuple[int, Contribution]]:
    rows = sketches.unpacked(record.sketches)
    for place, piece in enumerate(record.pieces):
        yield (
            piece,
            Contribution(
                backward=record.backward,
                site=record.site,
                how=record.how,
                sketch=rows[place],
                whole=record.whole[place],
                layout=record.layouts.get(place),
                version=record.versions[place],
                calls=record.calls[: record.after[place]] if record.calls else (),
            ),
        )


def _values(record: Values) -> dict[int, Value]:
    return {piece: _value(record, place) for place, piece in enumerate(record.pieces)}


def _value(record: Values, place: int) -> Value:
    digest = record.digests[place * WIDTH : (place + 1) * WIDTH]
    return Value(sketches.unpacked(record.sketches)[place], digest, record.layouts.get(place))
