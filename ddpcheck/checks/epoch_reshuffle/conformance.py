"""`epoch-reshuffle` over a training: no two epochs come in the same order."""

from __future__ import annotations

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.epochs_of_samples import UNEVEN, epochs_of, in_order
from ddpcheck.trainings.suite_row import Row, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import listing


def judge(trained: Trained) -> Judged:
    """`epoch-reshuffle`: no two epochs come in the same order."""
    epochs = epochs_of(trained)
    if epochs is None or len(epochs) < 2:
        return Judged(checked=0, skipped_because=UNEVEN)
    orders = [tuple(tuple(n for batch in batches for n in batch) for batches in ranks) for ranks in epochs]
    same = [(a, b) for b in range(len(orders)) for a in range(b) if orders[a] == orders[b]]
    findings: tuple[Finding, ...] = ()
    if same:
        pairs = listing([f"{a} and {b}" for a, b in same], 3)
        never = in_order(epochs[same[0][0]], trained.situation.size.at(trained.world_size))
        findings = (
            Finding(
                rule="same-order-each-epoch",
                ranks=tuple(trained.ranks),
                subject="job.dataset",
                expected="another order of the samples in every epoch, since job.shuffle is set",
                found=f"the same order in epochs {pairs}" + (": that of the dataset" if never else ""),
                advice="Give shuffle=job.shuffle to the sampler."
                if never
                else "Call set_epoch on the DistributedSampler itself at the start of every epoch.",
                cause="nothing shuffles" if never else "the sampler was given no epoch, or of the same one",
            ),
        )
    return Judged(checked=len(orders) - 1, findings=findings)


ROWS = (Row("epoch-reshuffle", ("plain",), one(judge)),)
