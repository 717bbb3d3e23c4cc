"""``forward-mode``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import GROUPS, ORIGINS, Check, Rule

CHECK = Check(
    holds=(
        "in one window all holders run the forwards that its backward reaches in the same mode (training and "
        "requires_grad of their modules)"
    ),
    order=105,
    unit="window",
    rules=(
        Rule("different-training-modes", "ranks train one model with different modules in evaluation mode"),
        Rule("different-frozen-parameters", "ranks train one model with different parameters frozen"),
    ),
    follows=ORIGINS,
    rests_on=(*GROUPS, "steps", "optimizers", "backwards", "contributions", "module calls"),
)
