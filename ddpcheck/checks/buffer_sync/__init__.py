"""``buffer-sync``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="buffers that are meant to agree do",
    order=170,
    follows=(
        "checkpoint-load-complete",
        "checkpoint-read-after-write",
        "process-hygiene",
        "batch-count",
        "reducer-coverage",
        "collective-order",
        "initial-broadcast",
        "gradient-sync",
        "parameter-sync",
    ),
    rests_on=(
        "groups",
        "wrappers",
        "uneven inputs",
        "steps",
        "forwards",
        "armed forwards",
        "optimizers",
        "broadcasts of buffers",
        "buffers",
        "module calls",
        "recomputation",
    ),
)
