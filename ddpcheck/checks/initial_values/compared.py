"""Of which models all that was drawn was compared between the ranks, as they began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ddpcheck import evidence as ev
from ddpcheck.facts.tensors import copies
from ddpcheck.judging import first_forwards, step_alignment
from ddpcheck.judging.world import Rank, World
from ddpcheck.judging.zero_digests import nothing_of

Tensor = tuple[int, int, str]
"""By rank, model and name."""


def models(world: World, stages: Iterable[tuple[Rank, ev.Model]]) -> int:
    """How many there are, each rank's by itself; ``stages`` were compared with others of a pipeline.

    What is filled with one number need not be compared: it is no sign of a copy, or of a shard. Ranks with which
    nothing of a model was compared may hold parts of it, or copies, that began otherwise.
    """
    among = _copies(world)
    for tensor, ranks in _shards(world).items():
        among[tensor] |= ranks
    together = {(rank.rank, model.model) for rank, model in stages}
    return sum(
        (rank.rank, model.model) in together or _is_compared(world, rank, model, among)
        for rank, model in world.of(ev.Model)
        if not model.unread
    )


def _is_compared(world: World, rank: Rank, model: ev.Model, among: dict[Tensor, set[int]]) -> bool:
    held = [one for one in model.held if not one.buffer and not one.same_as and one.digest not in nothing_of(one)]
    each = {one.name: among[rank.rank, model.model, one.name] for one in held}
    drawn = [each[one.name] for one in held if not one.filled]
    reached = set[int]().union(*each.values())
    return all(len(ranks) > 1 for ranks in drawn) and len(reached) == world.world_size


def _copies(world: World) -> dict[Tensor, set[int]]:
    """The ranks that a tensor was compared with in a wrapper, or on entry to the first step, where they agree on it."""
    found: dict[Tensor, set[int]] = defaultdict(set)
    for replicas in step_alignment.wrappers(world):
        for rank, wrapped in zip(replicas.ranks, replicas.wrapped, strict=True):
            for name in {*wrapped.parameters.names} - {*wrapped.ignored}:
                found[rank.rank, wrapped.module, name] |= {one.rank for one in replicas.ranks}
    for one in copies(world):
        optimizer = one.optimizer
        for rank, described in zip(optimizer.ranks, optimizer.described if optimizer.first else (), strict=False):
            for parameter in map(described.parameters.__getitem__, one.parameters):
                if parameter.model is not None:
                    found[rank.rank, parameter.model, parameter.path] |= {it.rank for it in optimizer.ranks}
    return found


def _shards(world: World) -> dict[Tensor, set[int]]:
    """The ranks of whose shards it is known that they are of one whole, or were written to since they were cut."""
    found: dict[Tensor, set[int]] = {}
    for everywhere in first_forwards.everywhere(world):
        for name, held in everywhere.held.items():
            ranks = [rank for rank, one in held.items() if one.layout is not None and one.layout.sharded]
            if not any(one.cut_from == ev.UNSEEN for one in held.values()):
                together = {rank.rank for rank in ranks}
                found |= {(rank.rank, everywhere.models[rank].model, name): together for rank in ranks}
    return found
