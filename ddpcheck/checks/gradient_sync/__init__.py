"""``gradient-sync``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="on entry to every optimizer step all ranks hold the same gradients",
    order=110,
    follows=(
        "checkpoint-load-complete",
        "checkpoint-read-after-write",
        "process-hygiene",
        "batch-count",
        "reducer-coverage",
        "collective-order",
        "initial-broadcast",
        "optimizer-sync",
        "parameter-sync",
    ),
    rests_on=(
        "groups",
        "wrappers",
        "uneven inputs",
        "collectives",
        "steps",
        "forwards",
        "backwards",
        "armed forwards",
        "optimizers",
        "reduced parameters",
        "reductions",
        "no_sync",
        "conversions",
        "scalers",
    ),
    assertions=("assert_gradients_identical",),
)
