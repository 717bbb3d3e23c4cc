"""``parameter-sync`` at one line of a test."""

from __future__ import annotations

from functools import partial

from ddpcheck.checks import state_at_line
from ddpcheck.checks.state_at_line import StateRow

_REPAIRS = "Find what changes parameters on one rank alone: to reduce gradients never repairs parameters."
ROW = StateRow(
    rule="different-parameters",
    noun="parameter",
    tensors="the same parameters",
    advice=_REPAIRS,
    advice_of_copies=_REPAIRS,
)
judge = partial(state_at_line.judge, ROW)
