"""`shard-partition` over a training: in each epoch the ranks' samples are disjoint and cover the dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.epochs_of_samples import (
    OF_A_STREAM,
    ONE_SHARE,
    UNEVEN,
    Batches,
    apart_in_a_copy,
    epochs_of,
    in_order,
    numbers,
)
from ddpcheck.trainings.situations import curriculum
from ddpcheck.trainings.suite_row import Row, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

MANY = 8
"""Samples that no shuffling leaves in their order but by a chance of one in forty thousand."""


def judge(trained: Trained, sequence: Sequence[int] | None = None) -> Judged:
    """`shard-partition`: in each epoch the ranks' samples are disjoint and cover the dataset, in its order if asked.

    ``sequence`` is the order that a sampler of the user's own yields.
    """
    epochs = epochs_of(trained)
    if epochs is None:
        total = _epochless(trained)
        return Judged(checked=1 if total else 0, findings=total, skipped_because=UNEVEN)
    finding = next(
        (
            found
            for number, ranks in enumerate(epochs)
            if (found := _share(trained, number, ranks, sequence) or _order(trained, number, ranks, sequence))
        ),
        None,
    )
    return Judged(checked=len(epochs), findings=(finding,) if finding else ())


def _epochless(trained: Trained) -> tuple[Finding, ...]:
    """Where epochs are of no equal length: whether each sample came as often as there are epochs, at the least."""
    size, epochs = trained.situation.size.at(trained.world_size), trained.situation.epochs
    times = Counter(n for trace in trained.traces for micro in trace.micros for n in micro.forward.samples)
    often = [n for n in range(size) if times[n] > 2 * epochs]
    if not often:
        return ()
    return (
        Finding(
            rule="repeated-samples",
            ranks=tuple(trained.ranks),
            subject="job.dataset",
            expected=f"each of {count(size, 'sample')} once in each of {count(epochs, 'epoch')}",
            found=f"{count(len(often), 'sample')} more than twice as often: sample {often[0]} {times[often[0]]} times "
            f"({trained.situation.about})",
            advice="Give each rank its own share of the samples.",
        ),
    )


def _share(trained: Trained, epoch: int, ranks: list[Batches], sequence: Sequence[int] | None) -> Finding | None:
    situation, readers = trained.situation, len(ranks)
    size = situation.size.at(trained.world_size)
    wanted = Counter(sequence if sequence is not None else range(size))
    taken = Counter(n for batches in ranks for batch in batches for n in batch)
    missing = sorted((wanted - taken).elements())
    further = list((taken - wanted).elements())
    whole = readers * situation.batch_size
    # Where what does not fill a batch is dropped, a sampler may still have evened the ranks out before.
    padding = readers - 1 if situation.drop_last else -size % whole
    dropped = size % whole if situation.drop_last else 0
    if len(missing) <= dropped and len(further) <= padding:
        return None
    by_rank = [Counter(n for batch in batches for n in batch) for batches in ranks]
    shared = [n for n in taken if sum(n in of_rank for of_rank in by_rank) > 1]
    expected = f"the ranks to share {count(size, 'sample')} in epoch {epoch}, each taken once"
    cause, advice = _cause_of_shares(trained, by_rank, size)
    if sequence is not None:
        expected = f"the ranks to share what job.sampler yields in epoch {epoch}, with all that comes twice"
        advice = "Let job.sampler say the order, and give each rank its share of that."
        if not taken - Counter(range(size)):
            cause = "another sampler was put in its place: each sample came once"
    elif padding and not situation.drop_last:
        expected += f" (up to {padding} may be repeated to even the ranks out)"
    found = []
    if len(missing) > dropped:
        found.append(f"{count(len(missing), 'sample')} taken by no rank ({numbers(missing)})")
    if len(further) > padding:
        found.append(f"{count(len(further), 'sample')} too many ({numbers(sorted(set(further)))})")
    if shared and sequence is None:
        found.append(f"{count(len(shared), 'sample')} on several ranks at once")
    return Finding(
        rule="repeated-samples" if len(further) > padding else "missing-samples",
        ranks=tuple(trained.ranks),
        subject="job.dataset",
        expected=expected,
        found="; ".join(found) + f", with {situation.about}",
        advice=advice,
        cause=cause,
    )


def _cause_of_shares(trained: Trained, by_rank: Sequence[Counter[int]], size: int) -> tuple[str, str]:
    """The likely cause of shares that overlap, and the fix."""
    if trained.world_size > 1 and all(len(of_rank) == size for of_rank in by_rank):
        return (
            "every rank takes the whole of it",
            "Give each rank a share: by a DistributedSampler, or of a stream every world_size-th sample from the "
            "rank-th on.",
        )
    missing = size - len(set().union(*by_rank))
    if 0 < missing < trained.world_size and max(map(len, by_rank)) == size // trained.world_size:
        return (
            "what does not divide evenly among the ranks is left out",
            "Even the ranks out by repeating samples, as DistributedSampler does without drop_last, where "
            "job.drop_last is not set.",
        )
    if trained.situation.iterable and trained.situation.workers:
        return "the workers of a loader are distinguished twice, or not at all, or are taken for ranks", OF_A_STREAM
    alike = [rank for rank, of_rank in enumerate(by_rank) if rank and of_rank in by_rank[:rank]]
    if alike:
        pairs = listing([f"{by_rank.index(by_rank[rank])} and {rank}" for rank in alike], 3)
        return (
            f"ranks {pairs} take the same share"
            + (", as their local ranks are the same" if trained.situation.two_nodes else ""),
            "Shard by the rank in the group and the world size, when the group is there, and not by the local rank.",
        )
    return (
        "the ranks do not share out one order: a seed, an epoch or the dataset's own order differs between them",
        "Shuffle by one seed and one epoch on all ranks, as DistributedSampler does with the same arguments.",
    )


def _order(trained: Trained, epoch: int, ranks: list[Batches], sequence: Sequence[int] | None) -> Finding | None:
    """Without shuffling, each round of micro-batches takes the next samples, whichever rank has which of them."""
    situation = trained.situation
    order = list(sequence) if sequence is not None else list(range(situation.size.at(trained.world_size)))
    if situation.iterable and situation.workers:
        return None  # each worker fills batches of its own part
    if situation.shuffle:
        return _shuffled(trained, epoch) if len(order) >= MANY and in_order(ranks, len(order)) else None
    whole = len(ranks) * situation.batch_size
    for number, batches in enumerate(zip(*ranks, strict=True)):
        wanted = order[number * whole : (number + 1) * whole]
        taken = [n for batch in batches for n in batch]
        if len(wanted) == whole and Counter(taken) != Counter(wanted):
            told = "job.sampler yields" if sequence is not None else "the dataset has"
            return Finding(
                rule="samples-out-of-order",
                ranks=tuple(trained.ranks),
                subject="job.dataset",
                expected=f"the ranks to take the samples in the order that {told} them in, since job.shuffle is not "
                "set",
                found=f"in round {number} of epoch {epoch} samples {numbers(sorted(taken))} instead of "
                f"{numbers(sorted(wanted))}, with {situation.about}",
                advice="Shuffle only where job.shuffle is set, and deal the samples of a sampler out in its own order.",
            )
    return None


def _shuffled(trained: Trained, epoch: int) -> Finding:
    return Finding(
        rule="unshuffled-samples",
        ranks=tuple(trained.ranks),
        subject="job.dataset",
        expected="the samples to be shuffled, since job.shuffle is set",
        found=f"epoch {epoch} in the order of the dataset",
        advice="Give shuffle=job.shuffle to the sampler.",
    )


def _of_the_sampler(trained: Trained) -> Judged:
    return judge(trained, curriculum(trained.situation.size.at(trained.world_size)))


def _of_copies(trained: Trained) -> Judged:
    """Whether the ranks of one copy of the model take the same samples; if so, how the copies share them."""
    apart = apart_in_a_copy(trained)
    if not apart:
        return judge(trained)
    finding = Finding(
        rule="different-samples-in-replica",
        ranks=tuple(trained.ranks),
        subject="job.dataset",
        expected="the ranks along tp, which have one copy of the model among them, to take the same samples",
        found=f"other samples than those of the rank before it on {ranks_text(apart)}, with {trained.situation.about}",
        advice=ONE_SHARE,
        cause="the samples were dealt out over all ranks",
    )
    return Judged(checked=1, findings=(finding,))


ROWS = (
    Row("shard-partition", ("plain",), one(judge)),
    *(
        Row(f"shard-partition:{name}", (name,), one(judge))
        for name in ("in-order", "drop-last", "few-samples", "iterable", "iterable-uneven", "iterable-workers")
    ),
    Row("shard-partition:sampler", ("sampler",), one(_of_the_sampler)),
    Row("shard-partition:two-nodes", ("two-nodes",), one(judge), world_sizes=(4,)),
    Row("shard-partition:ddp-tp", ("ddp-tp",), one(_of_copies), world_sizes=(4,)),
)
