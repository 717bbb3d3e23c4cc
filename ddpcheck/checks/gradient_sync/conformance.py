"""`gradient-sync` over a training: on entry to every step all ranks hold the same gradients."""

from __future__ import annotations

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.steps_of_ranks import judge_steps
from ddpcheck.trainings.suite_row import ANY, Row, each
from ddpcheck.trainings.trained_situation import Trained


def judge(trained: Trained) -> Judged:
    """`gradient-sync`: on entry to every step all ranks hold the same gradients."""
    return judge_steps(
        trained,
        "gradient-sync",
        lambda step: step.gradients,
        "all ranks to hold the same gradients on entry to every step",
        "Compute the loss from the output of the DistributedDataParallel wrapper, leave no_sync() before the last "
        "forward of a step, and treat gradients alike on every rank.",
    )


ROWS = (Row("gradient-sync", (ANY,), each(judge), least=2),)
