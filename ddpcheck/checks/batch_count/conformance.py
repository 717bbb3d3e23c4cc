"""`batch-count` over a training: all ranks take equally many micro-batches, as many as the sizes imply."""

from __future__ import annotations

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.epochs_of_samples import OF_A_STREAM
from ddpcheck.trainings.suite_row import Row, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count


def judge(trained: Trained) -> Judged:
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
            Finding(
                rule="unequal-batch-counts" if len(set(found)) > 1 else "unexpected-batch-count",
                ranks=tuple(trained.ranks),
                subject="job.dataset",
                expected=f"{told} batches on every rank: {count(situation.epochs, 'epoch')} over "
                f"{count(size, 'sample')} in batches of {situation.batch_size} on {count(trained.world_size, 'rank')}"
                + (", without what does not fill a batch" if situation.drop_last else ""),
                found=", ".join(f"{n} on rank {rank}" for rank, n in enumerate(found)),
                advice=OF_A_STREAM if situation.iterable else _OF_A_DATASET,
                cause="the dataset was not shared out: each rank has as many as one process has of the whole of it"
                if repeated
                else "",
            ),
        )
    return Judged(checked=situation.epochs, findings=findings)


_OF_A_DATASET = (
    "Let each rank have ceil(samples / (ranks * batch size)) batches of job.batch_size samples, or floor where "
    "job.drop_last is set: DistributedSampler and DataLoader do."
)
ROWS = (
    Row("batch-count", ("plain",), one(judge)),
    *(
        Row(f"batch-count:{name}", (name,), one(judge))
        for name in ("drop-last", "few-samples", "iterable", "iterable-uneven", "iterable-workers")
    ),
)
