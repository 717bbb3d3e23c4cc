"""`rng-independence`: what ranks and epochs draw differs where it has to."""

from __future__ import annotations

from itertools import combinations

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.epochs_of_samples import epochs_of
from ddpcheck.trainings.steps_with_micro_batches import STREAMS
from ddpcheck.trainings.suite_row import Row, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, ranks_text


def judge_dropout(trained: Trained) -> Judged:
    """No two ranks, and no two micro-batches, drop out the same."""
    drawn: dict[tuple[bytes, ...], list[tuple[int, int]]] = {}
    checked = 0
    for rank, trace in enumerate(trained.traces):
        for number, micro in enumerate(trace.micros):
            if micro.forward.masks:
                checked += 1
                drawn.setdefault(tuple(micro.forward.masks), []).append((rank, number))
    again = [places for places in drawn.values() if len(places) > 1]
    if not checked:
        return Judged(checked=0, skipped_because="no dropout was seen")
    if not again:
        return Judged(checked=checked)
    places = again[0]
    ranks = sorted({rank for rank, _ in places})
    where = ", ".join(f"batch {number} of rank {rank}" for rank, number in places[:4])
    across = len(ranks) > 1
    finding = Finding(
        rule="same-dropout-mask",
        ranks=tuple(ranks),
        subject=f"dropout on {ranks_text(ranks)}",
        expected="every rank to drop out other elements in every batch",
        found=f"the same mask in {where} ({count(len(again), 'mask')} came more than once)",
        cause="the ranks' random streams begin alike, or were made alike" if across else "the stream is begun anew",
        advice="Seed torch by seed + rank, once, and synchronise no global random state between the ranks."
        if across
        else "Seed torch once, at the start.",
    )
    return Judged(checked=checked, findings=(finding,))


Place = tuple[int, int, int]
"""Rank, number of the micro-batch, and sample."""


def judge_augmentation(trained: Trained) -> Judged:
    """No two ranks, workers or epochs draw the same random numbers for their samples, from none of the streams."""
    forwards = [
        (rank, number, micro.forward)
        for rank, trace in enumerate(trained.traces)
        for number, micro in enumerate(trace.micros)
    ]
    places = [(rank, number, sample) for rank, number, forward in forwards for sample in forward.samples]
    if not places:
        return Judged(checked=0, skipped_because="no sample was taken")
    for stream, numbers_of in STREAMS.items():
        drawn: dict[float, list[Place]] = {}
        numbers = [number for *_, forward in forwards for number in numbers_of(forward)]
        if not numbers:  # numpy is not installed
            continue
        for draw, place in zip(numbers, places, strict=True):
            drawn.setdefault(draw, []).append(place)
        again = [found for found in drawn.values() if len(found) > 1]
        if len(again) < 2:  # one may be chance; streams that are seeded alike have all their numbers in common
            continue
        ranks = sorted({rank for found in again for rank, _, _ in found})
        finding = Finding(
            rule="same-augmentation-draws",
            ranks=tuple(ranks),
            subject=f"the samples' augmentation on {ranks_text(ranks)}",
            expected="each sample to be augmented by random numbers of its own, in every rank, worker and epoch",
            found=f"{count(len(again), 'number')} drawn more than once from {stream}'s random stream: {_told(again)}",
            cause=_cause(trained, again),
            advice="Seed each worker by torch.initial_seed() (its base differs by rank where the ranks are seeded "
            "apart, and by epoch and worker), and Python's and numpy's streams from that."
            if trained.situation.workers
            else "Seed torch's, Python's and numpy's streams once, at the start, each by seed + rank.",
        )
        return Judged(checked=len(places), findings=(finding,))
    return Judged(checked=len(places))


def _told(again: list[list[Place]]) -> str:
    (rank, number, sample), (other, later, another) = again[0][:2]
    return (
        f"for sample {sample} in batch {number} of rank {rank}, "
        f"and for sample {another} in batch {later} of rank {other}"
    )


def _cause(trained: Trained, again: list[list[Place]]) -> str:
    epochs = epochs_of(trained)
    each = len(epochs[0][0]) if epochs else 0
    across_ranks = any(len({rank for rank, _, _ in places}) > 1 for places in again)
    across_epochs = each and any(
        a[0] == b[0] and a[1] // each != b[1] // each for places in again for a, b in combinations(places, 2)
    )
    told = [text for text, so in (("between ranks", across_ranks), ("between epochs", across_epochs)) if so]
    workers = bool(trained.situation.workers)
    if told:
        return f"{'the seeds of workers' if workers else 'its seeds'} coincide {' and '.join(told)}"
    return "the workers of one rank are seeded alike" if workers else "it is seeded again on the way"


ROWS = (
    Row("rng-independence", ("dropout",), one(judge_dropout)),
    Row("rng-independence:augmentation", ("augmentation",), one(judge_augmentation)),
    Row("rng-independence:long-random", ("long-random",), one(judge_augmentation)),
)
