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
    """Its digest before the first step, or at the first forward of what no optimizer has."""


@once_per_world
def holders(world: World) -> dict[Key, dict[int, Holder]]:
    """By rank, those that have a parameter which is filled with no one number, and of which nobody says how it lies."""
    found: dict[Key, dict[int, Holder]] = defaultdict(dict)
    stepped = {rank.rank: _at_first_steps(rank) for rank in world}
    for rank, model in world.of(ev.Model):
        for one in model.held:
            plain = one.layout is None or one.layout.ground in ("beside", "ignored")
            begun = stepped[rank.rank].get((model.model, one.name), one.digest)
            if not one.buffer and plain and not one.filled and begun not in (b"", ev.UNSEEN):
                found[model.kind, one.name].setdefault(rank.rank, Holder(rank, model.model, one.name, begun))
    return found


def _at_first_steps(rank: Rank) -> dict[tuple[int | None, str], bytes]:
    """By model and name, what optimizers came to first: between the first forward and then it may be sent."""
    found: dict[tuple[int | None, str], bytes] = {}
    for described in rank.of(ev.Optimizer):
        for place, one in enumerate(described.parameters):
            digest = step_alignment.at(described.values, place)
            if digest not in (b"", ev.UNSEEN, ev.ABSENT):
                found.setdefault((one.model, one.path), digest)
    return found


@once_per_world
def _kinds(world: World) -> dict[tuple[int, int], str]:
    return {(rank.rank, one.model): one.kind for rank, one in world.of(ev.Model)}


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
