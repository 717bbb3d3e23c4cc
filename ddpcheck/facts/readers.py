"""Which ranks train one model on other data each, and which share one copy of it and read the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import AVERAGING, data_groups
from ddpcheck.judging import mesh_names, step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World


class Readers(NamedTuple):
    """Ranks that train copies of a model on other data each."""

    ranks: list[Rank]
    models: Mapping[Rank, set[int]] | None
    """The models that these are, by their numbers; None for whatever they train."""
    apart: bool = False
    """Each goes its own way between averages."""


@once_per_world
def readers(world: World) -> list[Readers]:
    """A wrapper says so, what shards a model, or the names of a mesh; or the program, which reduces all of a model.

    It makes all gradients of an optimizer, or its parameters, the same.
    """
    groups, declared = data_groups(world)
    if declared:
        return [Readers([rank for rank in world if rank.rank in group], None) for group in groups]
    found = []
    for optimizer in step_alignment.optimizers(world):
        ground = grounds(world, optimizer)
        if len({*ground.by_hand, *ground.moved}) == len(optimizer.described[0].parameters):
            found.append(Readers(optimizer.ranks, models_of(optimizer), bool(ground.moved)))
    return found


def models_of(optimizer: Aligned) -> dict[Rank, set[int]]:
    """By rank, the models whose parameters an optimizer steps."""
    each = zip(optimizer.ranks, optimizer.described, strict=True)
    return {rank: {p.model for p in one.parameters if p.model is not None} for rank, one in each}


def are_peers(world: World, ranks: set[int]) -> bool:
    """Whether these share one copy of a model: by the names of a mesh, or because nothing but its layers is split."""
    if any(ranks <= set(group) for group in mesh_names.peers(world)):
        return True
    split = [one.how for _, one in world.of(ev.Parallelised)]
    return bool(split) and not any(how in AVERAGING for how in split) and not any(r.of(ev.Wrapped) for r in world)
