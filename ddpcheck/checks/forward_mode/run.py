"""Do the ranks of one model run the forwards of a window in the same mode?"""

from __future__ import annotations

from ddpcheck.checks.rows import Row, Words, read
from ddpcheck.facts import modes
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import why_none
from ddpcheck.judging.world import Judged, World

ROWS = (
    Row(
        rule="different-training-modes",
        moment="training",
        noun="module",
        expected="{whom} to run the forwards of a window in the same mode",
        found="{values}: {differ} of {of} to differ: {names}",
        causes={
            "": Words(
                "one rank has called model.eval() for an evaluation of its own, or a load or a copy has left it so, "
                "and nothing has called model.train() again",
                "Call model.train() on every rank before its first forward of each epoch, after every evaluation, load "
                "and export.",
            )
        },
    ),
    Row(
        rule="different-frozen-parameters",
        moment="trained",
        expected="{whom} to need gradients of the same parameters in the forwards of a window",
        found="{values}: {differ} of {of} to differ: {names}",
        causes={
            "": Words(
                "requires_grad is set by a condition that depends on the rank or its data",
                "Freeze and unfreeze the same parameters on every rank, before the model is wrapped or sharded.",
            )
        },
    ),
)
_NOTHING = "ddpcheck saw no window in which all ranks of a model ran its forwards in one known mode"


def judge(world: World) -> Judged:
    """Compare the modes of the forwards that each window's backward() calls reach."""
    reading = read(modes.of(world), ROWS)
    checked, made = step_alignment.coverage(world, reading.windows)
    because = _NOTHING if reading.has_looks else why_none(world, step_alignment.optimizers(world))
    return Judged(checked=checked, of=made, findings=tuple(reading.findings), skipped_because=because or _NOTHING)
