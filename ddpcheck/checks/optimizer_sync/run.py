"""Do the ranks step alike? Judge of optimizer-sync: state, learning rates, and the scaler's factor."""

from __future__ import annotations

from ddpcheck.checks.optimizer_sync import schedulers
from ddpcheck.checks.rows import Row, Words, read
from ddpcheck.facts import settings
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import why_none
from ddpcheck.judging.world import Judged, World

_FIX = "Compute learning rates and scales from numbers that all ranks share, and load optimizer state on all of them."
_OVERFLOW = (
    "Decide it together: all-reduce the flag of an overflow (with MAX) over the ranks that share the model, and wait "
    "for it, before a rank steps or changes its scale; ShardedGradScaler does so."
)
ROWS = (
    Row(
        rule="unequal-learning-rates",
        moment="rates",
        subject="the {optimizer}'s learning rate",
        expected="{whom} to step by the same learning rate",
        found="{values}",
        causes={
            "": Words("a scheduler is stepped on some ranks alone, or the rate is computed from what differs", _FIX)
        },
    ),
    Row(
        rule="unequal-gradient-scales",
        moment="scale",
        subject="the gradient scale",
        expected="{whom} to have the same gradient scale in every step",
        found="{values}",
        causes={"": Words("a scaler saw other gradients than its peers did", _OVERFLOW)},
    ),
    Row(
        rule="unequal-optimizer-states",
        moment="state",
        subject="the {optimizer}'s state",
        expected="the same state on {whom} in every step",
        found="{names} to differ{unseen}",
        causes={
            "alone": Words("it was loaded or reset on some ranks alone", _FIX),
            "": Words("", "Find what one rank alone does in these steps, to gradients after backward() or to it."),
        },
    ),
    Row(
        rule="unequal-optimizer-states",
        moment="counters",
        subject="the {optimizer}'s {name}",
        expected="a count of steps, {name!r} in the groups of parameters, to be the same on all ranks that have made "
        "the same steps",
        found="{last} after {steps} steps",
        causes={
            "": Words(
                "a rank counts only the steps in which it has something to do itself",
                "Count every step on every rank, before it is known which gradients there are: schedules that this "
                "counter drives run out of step otherwise.",
            )
        },
    ),
    Row(
        rule="unequal-skipped-steps",
        moment="steps",
        expected="all ranks that hold parts of one model to step after the same backwards",
        found="{values}: what the parts make together is no step of the model",
        causes={
            "scaled": Words("each rank's scaler looks for an overflow in its own part of the gradients", _OVERFLOW),
            "": Words("each rank decides on its own part of the gradients whether to step", _OVERFLOW),
        },
    ),
)  # fmt: skip
_NOTHING = "ddpcheck saw no learning rate, gradient scale or state, other than zero, on several ranks"


def judge(world: World) -> Judged:
    """Compare what decides the length and direction of each step."""
    reading = read(settings.of(world), ROWS)
    checked, made = step_alignment.coverage(world, reading.windows, reading.moments)
    because = _NOTHING if reading.has_looks else why_none(world, step_alignment.optimizers(world))
    findings = (*reading.findings, *schedulers.judge(world))
    return Judged(checked=checked, of=made, findings=findings, skipped_because=because)
