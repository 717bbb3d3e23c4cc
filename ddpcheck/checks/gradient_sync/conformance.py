"""`gradient-sync` over a training: on entry to every step all ranks hold the same gradients."""

from __future__ import annotations

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.situations import Parallelism
from ddpcheck.trainings.steps_of_ranks import judge_steps
from ddpcheck.trainings.suite_row import ANY, Row, each, one
from ddpcheck.trainings.trained_situation import Trained


def judge(trained: Trained) -> Judged:
    """`gradient-sync`: on entry to every step all ranks hold the same gradients."""
    return judge_steps(
        trained,
        lambda step: step.gradients,
        "all ranks to hold the same gradients on entry to every step",
        ADVICE.get(trained.situation.parallelism, ADVICE["ddp"]),
        rule="different-gradients",
    )


ADVICE: dict[Parallelism, str] = {
    "ddp": "Compute the loss from the output of the DistributedDataParallel wrapper, leave no_sync() before the last "
    "forward of a step, and treat gradients alike on every rank.",
    "hsdp": "Shard over the whole of job.mesh, let the last backward of a step reduce (set_requires_gradient_sync, "
    "set_requires_all_reduce), and treat gradients alike on every rank.",
    "ddp-tp": "Average the gradients over job.mesh['dp'] after the last backward of a step, and treat them alike on "
    "every rank.",
}


ROWS = (
    Row("gradient-sync", (ANY,), each(judge), least=2),
    Row("gradient-sync:hsdp", ("hsdp",), one(judge), world_sizes=(4,)),
    Row("gradient-sync:ddp-tp", ("ddp-tp",), one(judge), world_sizes=(4,)),
)
