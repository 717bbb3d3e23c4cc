"""The windows of each optimizer that a rank has looked at, with what its pieces of tensors held in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ddpcheck.evidence import WIDTH, Contributions, Layout, Piece, Pieces, Values
from ddpcheck.facts import sketches
from ddpcheck.facts.sketches import Numbers
from ddpcheck.judging.world import Rank


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


class Window:
    """One step of an optimizer, and what came before it since the last one."""

    def __init__(self, step: Values) -> None:
        self.optimizer, self.number = step.optimizer, step.number
        self.places = dict(zip(step.pieces, step.places, strict=True))
        """By piece, the place of its parameter among the optimizer's."""
        self.before: dict[int, Value] = {}
        """W: what parameters held at the first forward, or on entry to the step."""
        self.contributions: dict[int, list[Contribution]] = {}
        """C, by piece: also of those that another optimizer owns, or that of another rank."""
        self.gradients = _values(step)
        """G: what the step was made on."""
        self.after: dict[int, Value] = {}
        """U: what parameters held when it had returned."""


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
    read: dict[int, tuple[int, Value]] = {}
    """By piece, its value at the last forward, and the steps of all before that."""
    backwards = rank.of(Contributions)
    for record in rank.of(Values):
        if record.at_moment == "W":
            for piece, value in _values(record).items():
                read[piece] = (record.number if record.optimizer is None else -1), value
        elif record.at_moment == "G":
            window = Window(record)
            windows.setdefault(window.optimizer, []).append(window)
            since, steps = record.since
            window.before = {piece: value for piece, (step, value) in read.items() if step < 0 or step >= steps}
            window.contributions = _between(backwards, since, record.backwards)
        elif record.optimizer in windows and (window := windows[record.optimizer][-1]).number == record.number:
            window.after = _values(record)
            window.places = dict(zip(record.pieces, record.places, strict=True))
    for window in (one for each in windows.values() for one in each):
        window.before = {piece: value for piece, value in window.before.items() if piece in window.places}
    return Moments(pieces, windows)


def _between(records: Sequence[Contributions], since: int, until: int) -> dict[int, list[Contribution]]:
    """What the backward() calls after the first so many, up to another number of them, have contributed."""
    found: dict[int, list[Contribution]] = {}
    for record in records:
        if since < record.backward <= until:
            rows = sketches.unpacked(record.sketches)
            for place, piece in enumerate(record.pieces):
                found.setdefault(piece, []).append(
                    Contribution(
                        backward=record.backward,
                        site=record.site,
                        how=record.how,
                        sketch=rows[place],
                        whole=record.whole[place],
                        layout=record.layouts.get(place),
                        version=record.versions[place],
                    )
                )
    return found


def _values(record: Values) -> dict[int, Value]:
    rows = sketches.unpacked(record.sketches)
    return {
        piece: Value(rows[place], record.digests[place * WIDTH : (place + 1) * WIDTH], record.layouts.get(place))
        for place, piece in enumerate(record.pieces)
    }
