"""``rank-failure``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="no rank fails; when one does, it is named as the root cause",
    order=140,
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
    ),
    rests_on=("ends of processes",),
    of_endings=True,
    stops=True,
)
