"""Ranks that the samplers themselves take for one reader: those that hold one copy of a model read the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import Pass
from ddpcheck.judging.step_alignment import members
from ddpcheck.judging.world import World

ONE_READER = "it is unknown whether the ranks that share a sampler's shard form one model replica"
"""Why nothing was checked."""


def beside_the_first(world: World, there: Mapping[int, Sequence[Pass]]) -> set[int]:
    """The ranks that read what another one reads, as their samplers were made to do; none where this is no order.

    Every reader has to be there equally often, on ranks that average no gradients with each other.
    """
    loaders = {rank: passes[0].loader for rank, passes in there.items()}
    ranks_of: dict[int | None, list[int]] = defaultdict(list)
    for rank, one in sorted(loaders.items()):
        if one is None or not one.distributed:
            return set()
        ranks_of[one.rank].append(rank)
    replicas = {one.replicas for one in loaders.values() if one is not None}
    if len(ranks_of) == len(loaders) or replicas != {len(ranks_of)} or set(ranks_of) != set(range(len(ranks_of))):
        return set()
    if len({len(ranks) for ranks in ranks_of.values()}) > 1 or any(_average(world, r) for r in ranks_of.values()):
        return set()
    return {rank for ranks in ranks_of.values() for rank in ranks[1:]}


def _average(world: World, ranks: Sequence[int]) -> bool:
    """Whether an optimizer's gradients, and not a few of them, go through collectives of several of these ranks.

    What each rank holds whole beside its part, such as norms, is added up over the ranks of one model, too.
    """
    for rank in world:
        for one in rank.of(ev.Optimizer) if rank.rank in ranks else ():
            places = {
                carried.place
                for exchanged in rank.of(ev.Exchanged)
                for carried in exchanged.carried
                if exchanged.optimizer == one.optimizer and carried.of == "gradient"
                if len({other.rank for other in members(world, carried.group)}.intersection(ranks)) > 1
            }
            if one.parameters and len(places) == len(one.parameters):
                return True
    return False
