"""Which samples the ranks have taken in each epoch, by the numbers that the samples themselves carry."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.wording import listing

Batches = list[list[int]]
"""The micro-batches of one rank in one epoch, each the numbers of its samples."""


UNEVEN = "the ranks' batches cannot be divided into epochs: see batch-count"


OF_A_STREAM = (
    "Give each rank every world_size-th sample of the stream, and repeat some at its end where one rank would have one "
    "more; among the workers of a loader the dataset shares itself out (torch.utils.data.get_worker_info)."
)


def epochs_of(trained: Trained) -> list[list[Batches]] | None:
    """For each epoch and each rank, its micro-batches; None where ranks did not take equally many in every epoch.

    Of ranks that have one copy of the model among them it has the first.
    """
    epochs = trained.situation.epochs
    readers = trained.situation.readers(trained.world_size)
    taken = [[micro.forward.samples for micro in trained.traces[rank].micros] for rank in readers]
    lengths = {len(batches) for batches in taken}
    if len(lengths) != 1 or (length := lengths.pop()) % epochs or not length:
        return None
    each = length // epochs
    return [[batches[epoch * each : (epoch + 1) * each] for batches in taken] for epoch in range(epochs)]


def apart_in_a_copy(trained: Trained) -> list[int]:
    """The ranks that did not take the samples of the others that have one copy of the model with them."""
    readers = trained.situation.readers(trained.world_size)
    taken = [[micro.forward.samples for micro in trace.micros] for trace in trained.traces]
    return [rank for rank, own in enumerate(taken) if own != taken[rank - rank % readers.step]]


ONE_SHARE = (
    "Deal the samples out by the place along dp: DistributedSampler(dataset, num_replicas=job.mesh['dp'].size(), "
    "rank=job.mesh['dp'].get_local_rank())."
)


def in_order(ranks: list[Batches], size: int) -> bool:
    """Whether the samples come as the dataset has them, dealt out one by one or batch by batch; padding comes last."""
    by_batch = [n for batches in zip(*ranks, strict=True) for batch in batches for n in batch]
    own = [[n for batch in batches for n in batch] for batches in ranks]
    one_by_one = [n for taken in zip(*own, strict=False) for n in taken]
    return any(bool(dealt) and dealt[:size] == list(range(min(size, len(dealt)))) for dealt in (by_batch, one_by_one))


def numbers(samples: Sequence[int]) -> str:
    """Samples by their numbers, the first of them."""
    return listing([str(n) for n in samples], 6)
