"""``parameter-sync``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="after every optimizer step all ranks hold the same parameters",
    order=130,
    follows=(
        "checkpoint-load-complete",
        "checkpoint-read-after-write",
        "process-hygiene",
        "batch-count",
        "reducer-coverage",
        "collective-order",
        "initial-broadcast",
        "gradient-sync",
        "optimizer-sync",
    ),
    rests_on=(
        "groups",
        "wrappers",
        "uneven inputs",
        "collectives",
        "steps",
        "optimizers",
        "reduced parameters",
        "module calls",
    ),
    assertions=("assert_parameters_identical", "assert_replicas_identical"),
)
