"""`initial-broadcast` over a training: all ranks go into their first forward with the same parameters."""

from __future__ import annotations

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.steps_of_ranks import others
from ddpcheck.trainings.suite_row import ANY, Row, each
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text


def judge(trained: Trained) -> Judged:
    """`initial-broadcast`: all ranks go into their first training forward with the same parameters."""
    firsts = [trace.micros[0].forward.parameters if trace.micros else None for trace in trained.traces]
    if None in firsts:
        return Judged(checked=0, skipped_because="not all ranks came to a forward")
    other = others(firsts)
    finding = Finding(
        rule="different-initial-state",
        ranks=tuple(other),
        subject="job.model",
        expected="all ranks to begin with the parameters of one of them; each has made its own",
        found=f"other parameters than rank 0's in the first forward of {ranks_text(other)}",
        advice="Wrap the model in DistributedDataParallel, which broadcasts rank 0's, before the first forward.",
        step=0,
    )
    return Judged(checked=1, findings=(finding,) if other else ())


ROWS = (Row("initial-broadcast", (ANY,), each(judge), least=2),)
