"""``accumulation-window``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "inside a window gradients are only added to: not overwritten, rescaled, thrown away or stepped; a window has "
        "one step"
    ),
    order=104,
    follows=("reducer-coverage",),
    rests_on=("backwards", "steps", "optimizers", "module calls", "parameter names", "norms", "unreduced backwards"),
)
