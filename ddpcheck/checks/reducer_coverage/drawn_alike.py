"""Plain parameters as ranks began with them: copies of one began alike, and other shards or experts did not.

Equal values are no ground for that ranks must agree. They say which ranks may
hold copies, where what is done to gradients makes sense for no others.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import parameter_history, step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.summed_gradients import Brought
from ddpcheck.judging.world import Rank, World

Key = tuple[str, str]
"""The class of a model, and a parameter's name in there."""


class Holder(NamedTuple):
    """A rank that has a parameter."""

    rank: Rank
    model: int
    path: str
    begun: bytes
    """Its digest before the first step: until then it may be drawn, and sent."""


@once_per_world
def holders(world: World) -> dict[Key, dict[int, Holder]]:
    """By rank, those that have a parameter which is filled with no one number, and of which nobody says how it lies."""
    found: dict[Key, dict[int, Holder]] = defaultdict(dict)
    kinds = _kinds(world)
    for rank in world:
        for described in rank.of(ev.Optimizer):
            for place, one in enumerate(described.parameters):
                begun = step_alignment.at(described.values, place)
                plain = one.layout is None or one.layout.ground in ("beside", "ignored")
                if one.model is not None and plain and not one.filled and begun not in (b"", ev.UNSEEN):
                    key = kinds.get((rank.rank, one.model), ""), one.path
                    found[key].setdefault(rank.rank, Holder(rank, one.model, one.path, begun))
    return found


@once_per_world
def _kinds(world: World) -> dict[tuple[int, int], str]:
    return {(rank.rank, one.model): one.kind for rank in world for one in rank.of(ev.Model)}


def key_of(world: World, gradient: Brought) -> Key:
    """Which parameter a gradient is of."""
    return _kinds(world).get((gradient.rank.rank, gradient.model), ""), gradient.path


def have_parted(one: Holder, other: Holder) -> bool:
    """Whether two that began alike differ after the last step that was looked at on both."""
    mine, its = (
        {step.number: digest for step, digest in parameter_history.after_steps(each.rank, each.model, each.path)}
        for each in (one, other)
    )
    common = mine.keys() & its.keys()
    return bool(common) and mine[max(common)] != its[max(common)]
