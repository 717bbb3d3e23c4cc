"""``optimizer-sync``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="optimizer state, learning rate and gradient scale are the same on all ranks",
    order=120,
    follows=(
        "checkpoint-load-complete",
        "checkpoint-read-after-write",
        "process-hygiene",
        "batch-count",
        "reducer-coverage",
        "collective-order",
        "gradient-sync",
    ),
    rests_on=("groups", "wrappers", "uneven inputs", "steps", "optimizers", "scalers", "schedulers"),
)
