"""Which samples the ranks have taken: shares, order and number, by the numbers that the samples themselves carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

MANY = 8
"""Samples that no shuffling leaves in their order but by a chance of one in forty thousand."""

Batches = list[list[int]]
"""The micro-batches of one rank in one epoch, each the numbers of its samples."""


def judge_counts(trained: Trained) -> Judged:
    """`batch-count`: all ranks take equally many micro-batches, as many as the sizes imply."""
    situation, found = trained.situation, [len(trace.micros) for trace in trained.traces]
    whole = situation.epochs * -(-situation.size.at(trained.world_size) // situation.batch_size)
    wanted = [n * situation.epochs for n in situation.micro_batches(trained.world_size)]
    findings: tuple[Finding, ...] = ()
    if len(set(found)) > 1 or found[0] not in wanted:
        told = " or ".join(map(str, wanted))
        size = situation.size.at(trained.world_size)
        repeated = trained.world_size > 1 and set(found) == {whole} and not situation.workers
        findings = (
            _finding(
                trained,
                "batch-count",
                f"{told} batches on every rank: {count(situation.epochs, 'epoch')} over {count(size, 'sample')} in "
                f"batches of {situation.batch_size} on {count(trained.world_size, 'rank')}"
                + (", without what does not fill a batch" if situation.drop_last else ""),
                ", ".join(f"{n} on rank {rank}" for rank, n in enumerate(found)),
                _OF_A_STREAM if situation.iterable else _OF_A_DATASET,
                "the dataset was not shared out: each rank has as many as one process has of the whole of it"
                if repeated
                else "",
            ),
        )
    return Judged(check="batch-count", checked=len(found), findings=findings)


_OF_A_DATASET = (
    "Let each rank have ceil(samples / (ranks * batch size)) batches of job.batch_size samples, or floor where "
    "job.drop_last is set: DistributedSampler and DataLoader do."
)
_OF_A_STREAM = (
    "Give each rank every world_size-th sample of the stream, and repeat some at its end where one rank would have one "
    "more; among the workers of a loader the dataset shares itself out (torch.utils.data.get_worker_info)."
)


def epochs_of(trained: Trained) -> list[list[Batches]] | None:
    """For each epoch and each rank, its micro-batches; None where ranks did not take equally many in every epoch."""
    epochs = trained.situation.epochs
    taken = [[micro.forward.samples for micro in trace.micros] for trace in trained.traces]
    lengths = {len(batches) for batches in taken}
    if len(lengths) != 1 or (length := lengths.pop()) % epochs or not length:
        return None
    each = length // epochs
    return [[batches[epoch * each : (epoch + 1) * each] for batches in taken] for epoch in range(epochs)]


def judge_shares(trained: Trained, sequence: Sequence[int] | None = None) -> Judged:
    """`shard-partition`: in each epoch the ranks' samples are disjoint and cover the dataset, in its order if asked.

    ``sequence`` is the order that a sampler of the user's own yields.
    """
    epochs = epochs_of(trained)
    if epochs is None:
        total = _epochless(trained)
        return Judged(check="shard-partition", checked=1 if total else 0, findings=total, skipped_because=_UNEVEN)
    finding = next(
        (
            found
            for number, ranks in enumerate(epochs)
            if (found := _share(trained, number, ranks, sequence) or _order(trained, number, ranks, sequence))
        ),
        None,
    )
    return Judged(check="shard-partition", checked=len(epochs), findings=(finding,) if finding else ())


_UNEVEN = "the ranks' batches cannot be told apart by epochs: see batch-count"


def _epochless(trained: Trained) -> tuple[Finding, ...]:
    """Where epochs are of no equal length: whether each sample came as often as there are epochs, at the least."""
    size, epochs = trained.situation.size.at(trained.world_size), trained.situation.epochs
    times = Counter(n for trace in trained.traces for micro in trace.micros for n in micro.forward.samples)
    often = [n for n in range(size) if times[n] > 2 * epochs]
    if not often:
        return ()
    return (
        _finding(
            trained,
            "shard-partition",
            f"each of {count(size, 'sample')} once in each of {count(epochs, 'epoch')}",
            f"{count(len(often), 'sample')} more than twice as often: sample {often[0]} {times[often[0]]} times "
            f"({trained.situation.about})",
            "Give each rank its own share of the samples.",
        ),
    )


def _share(trained: Trained, epoch: int, ranks: list[Batches], sequence: Sequence[int] | None) -> Finding | None:
    situation, world_size = trained.situation, trained.world_size
    size = situation.size.at(world_size)
    wanted = Counter(sequence if sequence is not None else range(size))
    taken = Counter(n for batches in ranks for batch in batches for n in batch)
    missing = sorted((wanted - taken).elements())
    further = list((taken - wanted).elements())
    whole = world_size * situation.batch_size
    # Where what does not fill a batch is dropped, a sampler may still have evened the ranks out before.
    padding = world_size - 1 if situation.drop_last else -size % whole
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
        found.append(f"{count(len(missing), 'sample')} taken by no rank ({_numbers(missing)})")
    if len(further) > padding:
        found.append(f"{count(len(further), 'sample')} too many ({_numbers(sorted(set(further)))})")
    if shared and sequence is None:
        found.append(f"{count(len(shared), 'sample')} on several ranks at once")
    return _finding(
        trained,
        "shard-partition",
        expected,
        "; ".join(found) + f", with {situation.about}",
        advice,
        cause,
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
        return "the workers of a loader are told apart twice, or not at all, or are taken for ranks", _OF_A_STREAM
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
        return _shuffled(trained, epoch) if len(order) >= MANY and _in_order(ranks, len(order)) else None
    whole = trained.world_size * situation.batch_size
    for number, batches in enumerate(zip(*ranks, strict=True)):
        wanted = order[number * whole : (number + 1) * whole]
        taken = [n for batch in batches for n in batch]
        if len(wanted) == whole and Counter(taken) != Counter(wanted):
            told = "job.sampler yields" if sequence is not None else "the dataset has"
            return _finding(
                trained,
                "shard-partition",
                f"the ranks to take the samples in the order that {told} them in, since job.shuffle is not set",
                f"in round {number} of epoch {epoch} samples {_numbers(sorted(taken))} instead of "
                f"{_numbers(sorted(wanted))}, with {situation.about}",
                "Shuffle only where job.shuffle is set, and deal the samples of a sampler out in its own order.",
            )
    return None


def _in_order(ranks: list[Batches], size: int) -> bool:
    """Whether the samples come as the dataset has them, dealt out one by one or batch by batch; padding comes last."""
    by_batch = [n for batches in zip(*ranks, strict=True) for batch in batches for n in batch]
    own = [[n for batch in batches for n in batch] for batches in ranks]
    one_by_one = [n for taken in zip(*own, strict=False) for n in taken]
    return any(bool(dealt) and dealt[:size] == list(range(min(size, len(dealt)))) for dealt in (by_batch, one_by_one))


def _shuffled(trained: Trained, epoch: int) -> Finding:
    return _finding(
        trained,
        "shard-partition",
        "the samples to be shuffled, since job.shuffle is set",
        f"epoch {epoch} in the order of the dataset",
        "Give shuffle=job.shuffle to the sampler.",
    )


def judge_epochs(trained: Trained) -> Judged:
    """`epoch-reshuffle`: no two epochs come in the same order."""
    epochs = epochs_of(trained)
    if epochs is None or len(epochs) < 2:
        return Judged(check="epoch-reshuffle", checked=0, skipped_because=_UNEVEN)
    orders = [tuple(tuple(n for batch in batches for n in batch) for batches in ranks) for ranks in epochs]
    same = [(a, b) for b in range(len(orders)) for a in range(b) if orders[a] == orders[b]]
    findings: tuple[Finding, ...] = ()
    if same:
        pairs = listing([f"{a} and {b}" for a, b in same], 3)
        never = _in_order(epochs[same[0][0]], trained.situation.size.at(trained.world_size))
        findings = (
            _finding(
                trained,
                "epoch-reshuffle",
                "another order of the samples in every epoch, since job.shuffle is set",
                f"the same order in epochs {pairs}" + (": that of the dataset" if never else ""),
                "Give shuffle=job.shuffle to the sampler."
                if never
                else "Call set_epoch on the DistributedSampler itself at the start of every epoch.",
                "nothing shuffles" if never else "the sampler was told of no epoch, or of the same one",
            ),
        )
    return Judged(check="epoch-reshuffle", checked=len(orders), findings=findings)


def _numbers(samples: Sequence[int]) -> str:
    return listing([str(n) for n in samples], 6)


def _finding(trained: Trained, check: str, expected: str, found: str, advice: str, cause: str = "") -> Finding:
    return Finding(
        check=check,
        severity="error",
        ranks=tuple(trained.ranks),
        subject="job.dataset",
        expected=expected,
        found=found,
        cause=cause,
        advice=advice,
    )
