"""Trainings by the samples that each rank takes, written by hand."""

from __future__ import annotations

from ddpcheck.trainings.situations import Size
from tests.judging.trained import micro, situation, trace, trained


def small(number=8, **changed):
    """A situation of so many samples in batches of two, for two epochs."""
    return situation(size=Size(each=0, more=number), batch_size=2, epochs=2, **changed)


def takes(where, *ranks):
    """A training in which each rank takes these batches, epoch after epoch."""
    return trained(where, *(trace(*[micro(batch) for epoch in epochs for batch in epoch]) for epochs in ranks))


def dealt(orders, ranks=2, batch=2):
    """What a DistributedSampler makes of an order for each epoch: by rank, by epoch, batches."""
    shares = []
    for rank in range(ranks):
        own = [list(order)[rank::ranks] for order in orders]
        shares.append([[share[i : i + batch] for i in range(0, len(share), batch)] for share in own])
    return shares


ONE, OTHER = [3, 1, 0, 2, 7, 5, 4, 6], [6, 2, 1, 5, 0, 3, 7, 4]
RIGHT = dealt([ONE, OTHER])
