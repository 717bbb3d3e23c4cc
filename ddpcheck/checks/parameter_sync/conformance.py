"""`parameter-sync` over a training: after every step, and at its end, all ranks hold the same parameters."""

from __future__ import annotations

from ddpcheck.evidence import training_record
from ddpcheck.judging.world import Judged
from ddpcheck.trainings.steps_of_ranks import judge_steps, others
from ddpcheck.trainings.suite_row import ANY, Row, each, one
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text


def judge(trained: Trained) -> Judged:
    """`parameter-sync`: after every step, and when the trainer returns, all ranks hold the same parameters."""
    judged = judge_steps(
        trained,
        lambda step: step.after,
        "all ranks to hold the same parameters after every step",
        "Begin with the same parameters and optimizer state, and step with the same gradients, on every rank.",
        rule="different-parameters",
    )
    ends = [trace.first(training_record.Returned) for trace in trained.traces]
    if judged.findings or None in ends:
        return judged
    other = others([tuple(end.parameters) for end in ends])
    if not other:
        return judged
    finding = Finding(
        rule="different-parameters",
        ranks=tuple(other),
        subject="job.model",
        expected="all ranks to hold the same parameters when fit(job) returns",
        found=f"other parameters than rank 0's on {ranks_text(other)}, although they were the same after the last "
        f"step, with {trained.situation.about}",
        advice="Let all ranks take the same decision on what to load at the end, such as the best epoch: by a metric "
        "that was reduced over the ranks, or by rank 0's word.",
    )
    return Judged(checked=judged.checked, findings=(finding,))


ROWS = (
    Row("parameter-sync", (ANY,), each(judge), least=2),
    Row("parameter-sync:hsdp", ("hsdp",), one(judge), world_sizes=(4,)),
    Row("parameter-sync:ddp-tp", ("ddp-tp",), one(judge), world_sizes=(4,)),
)
