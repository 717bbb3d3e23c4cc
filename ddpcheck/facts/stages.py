"""Stages of a pipeline that a program makes itself: ranks that send each other activations and gradients."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from ddpcheck import evidence as ev
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World


@once_per_world
def pairs(world: World) -> list[tuple[Rank, Rank]]:
    """Ranks that send each other something for every step, of which one has no loss of its own.

    All of its backwards go on from gradients that another rank has computed.
    """
    peers = {rank.rank: _peers(rank) for rank in world}
    continued = {rank.rank for rank in world if _is_sent_gradients(rank)}
    return [
        (one, other)
        for one, other in combinations(world, 2)
        if other.rank in peers[one.rank] and one.rank in peers[other.rank] and continued & {one.rank, other.rank}
    ]


def _peers(rank: Rank) -> set[int]:
    calls = Counter(call.peer for call in rank.of(ev.Call) if call.op in ev.PAIRWISE and call.peer is not None)
    steps = len(rank.of(ev.Step))
    return {peer for peer, number in calls.items() if steps and number >= steps}


def _is_sent_gradients(rank: Rank) -> bool:
    backwards = rank.of(ev.LossWeights)
    return bool(backwards) and all(one.continued for one in backwards)
