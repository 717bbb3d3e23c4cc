"""``finite-values``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="no loss, gradient or parameter becomes NaN or infinite (a step that a GradScaler skips is none)",
    order=108,
    unit="loss",
    rules=(
        Rule("loss-not-finite", "a loss is NaN or infinite, and a step is made on it"),
        Rule("gradient-not-finite", "a gradient is NaN or infinite where the loss is not, and a step is made on it"),
        Rule("parameter-not-finite", "a parameter is NaN or infinite where its gradient is not"),
    ),
    rests_on=("backwards", "steps", "optimizers", "contributions"),
    compares_ranks=False,
    told_at_end=True,
)
