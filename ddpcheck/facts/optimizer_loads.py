"""Ledger 6: optimizers that state was loaded into: their parameters and moments before the first step that follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import states
from ddpcheck.facts.mixing import is_trained_apart
from ddpcheck.facts.states import ROUNDING, Piece, State
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World

Key = tuple[str, str]
"""A parameter's name in its model, or its place in the optimizer; and which of its moments."""


class OptimizerLoad(NamedTuple):
    """What one rank's optimizer holds after a load."""

    rank: Rank
    read: State
    weights: Mapping[str, Piece]
    moments: Mapping[Key, Piece]
    """Those that are not the same number in all elements, as when they are begun anew."""
    loaded: Mapping[str, Piece]
    """What loads have left of these parameters, of names that one model has."""
    may_share: bool
    """Ranks step copies of a model each for itself, and may bring moments together as they do with parameters."""


@once_per_world
def of(world: World) -> list[list[OptimizerLoad]]:
    """All of a run; those of several ranks that belong together."""
    groups = [group for group in states.same_turn(world) if group[0].how == "optimizer"]
    return [[_of(world, state) for state in group] for group in groups]


def _of(world: World, read: State) -> OptimizerLoad:
    weights, moments, name = {}, {}, ""
    for piece in read.pieces:  # each parameter comes before what is kept for it
        if piece.entry.role == "parameter":
            name = piece.entry.name
        if piece.entry.role == "parameter" and piece.seen:
            weights[name] = piece
        elif piece.seen and is_varied(piece):
            moments[name, piece.entry.key] = piece
    return OptimizerLoad(read.rank, read, weights, moments, _loaded(world, read), is_trained_apart(world))


def is_varied(piece: Piece) -> bool:
    """Whether not all elements are the same number."""
    size = prod(piece.size)
    total, squares = piece.sums[-2:]
    return bool(size > 1 and squares * size - total**2 > ROUNDING * squares * size)


def _loaded(world: World, read: State) -> dict[str, Piece]:
    record = read.record
    assert isinstance(record, ev.StateRead)
    since = max((one.n for one in read.rank.of(ev.Step) if one.n < record.n), default=0)
    last: dict[str, Piece] = {}
    models: dict[str, set[int]] = defaultdict(set)
    for state in states.reads(world):
        if state.rank is read.rank and state.how in ("module", "dcp.load") and since < state.record.n < record.n:
            assert isinstance(state.record, ev.StateRead)
            for one in state.pieces:
                if one.entry.role == "parameter" and one.seen:
                    last[one.entry.of] = one
                    models[one.entry.of].add(state.record.model)
    return {name: one for name, one in last.items() if len(models[name] - {-1}) < 2}
