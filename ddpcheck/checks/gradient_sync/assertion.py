"""``gradient-sync`` at one line of a test."""

from __future__ import annotations

from functools import partial

from ddpcheck.checks import state_at_line
from ddpcheck.checks.state_at_line import StateRow

ROW = StateRow(
    rule="different-gradients",
    noun="gradient",
    tensors="the same gradients",
    advice="Compute the loss from the output of the wrapper itself, leave no_sync() before the last forward of a step, "
    "and treat gradients alike on every rank between backward() and step().",
    advice_of_copies="Let gradients be reduced along the copies' dimension of the mesh in the last backward of a step, "
    "and treat them alike on every rank between backward() and step().",
    nothing="Call it after backward() and before zero_grad().",
)
judge = partial(state_at_line.judge, ROW)
