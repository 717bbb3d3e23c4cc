"""``optimizer-coverage``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "the optimizers hold exactly the live trainable parameters; every logical element is updated by one owner, or "
        "by all its holders alike"
    ),
    order=97,
    rests_on=("module calls", "optimizers", "steps", "parameter names", "backwards", "collectives", "schedulers"),
)
