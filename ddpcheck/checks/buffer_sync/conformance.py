"""`buffer-sync` over a training: all ranks go into every forward with the same buffers."""

from __future__ import annotations

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.steps_of_ranks import others
from ddpcheck.trainings.suite_row import Row, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, ranks_text


def judge(trained: Trained) -> Judged:
    """`buffer-sync`: all ranks go into every training forward with the same buffers."""
    rounds = list(zip(*(trace.micros for trace in trained.traces), strict=False))
    parted = [n for n, micros in enumerate(rounds) if others([m.forward.statistics for m in micros])]
    if not rounds:
        return Judged(checked=0, skipped_because="not all ranks came to a forward")
    findings: tuple[Finding, ...] = ()
    if parted:
        ranks = others([m.forward.statistics for m in rounds[parted[0]]])
        findings = (
            Finding(
                rule="different-buffers-in-forward",
                ranks=tuple(ranks),
                subject="the running statistics of BatchNorm",
                expected="all ranks to go into each forward with the same buffers",
                found=f"others than rank 0's on {ranks_text(ranks)} in {count(len(parted), 'forward')} of {len(rounds)}"
                f", from forward {parted[0]} on",
                advice="Let DistributedDataParallel broadcast the buffers (broadcast_buffers=True), or use "
                "SyncBatchNorm.",
            ),
        )
    return Judged(checked=len(rounds), findings=findings)


ROWS = (Row("buffer-sync", ("batchnorm",), one(judge), least=2),)
