"""``no-hang``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="every rank keeps making progress",
    order=150,
    follows=(
        "device-placement",
        "checkpoint-load-complete",
        "checkpoint-single-writer",
        "checkpoint-read-after-write",
        "process-hygiene",
        "shard-partition",
        "batch-count",
        "reducer-coverage",
        "collective-order",
        "rank-failure",
    ),
    rests_on=(
        "groups",
        "wrappers",
        "uneven inputs",
        "collectives",
        "forwards",
        "backwards",
        "armed forwards",
        "reduced parameters",
        "reductions",
        "broadcasts of buffers",
        "leaving",
        "unfinished calls",
        "ends of processes",
    ),
    of_endings=True,
    stops=True,
)
