"""Which ranks have to read other samples than each other, and on what ground that is known. Part of shard-partition."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck.checks.shard_partition.causes import Loaders
from ddpcheck.facts.datasets import by_index, identity_of
from ddpcheck.facts.passes import Line

NEARLY_ALL = 0.9

NO_COPIES = "no ranks were seen to train copies of one model"
OTHER_DATA = "groups of ranks read different samples, and it was not seen whether they hold one model among them"
"""Why nothing was checked."""


def share_out(loaders: Loaders) -> bool:
    """Whether samplers give each of these ranks another share of one dataset."""
    shares = {(one.replicas, one.rank) for one in loaders.values() if one is not None and one.distributed}
    return len(shares) == len(loaders) > 1


def why_ungrounded(line: Line, groups: Sequence[Sequence[int]]) -> str:
    """Why it is not known that just these ranks have to read other samples than each other; empty where it is.

    Ranks of several groups, or of none, may hold one model among them, and then read the same.
    """
    parts = [[rank for rank in group if rank in line.passes] for group in groups]
    parts += [[rank] for rank in line.passes if not any(rank in group for group in groups)]
    first, *others = [part for part in parts if part]
    return "" if all(_read_the_same(line, first, other) for other in others) else OTHER_DATA


def _read_the_same(line: Line, ranks: Sequence[int], others: Sequence[int]) -> bool:
    """Whether two groups of ranks had the same samples in their first passes, as far as both are known."""
    first = [line.passes[rank][0] for rank in (*ranks, *others)]
    indexed = by_index(first, identity_of(first))
    each = [
        {s.place if indexed else s.print_ for rank in group for s in line.passes[rank][0].samples} - {None}
        for group in (ranks, others)
    ]
    return len(each[0] & each[1]) >= NEARLY_ALL * max(map(len, each))
