"""``gradient-oracle``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="the update equals that of one process on the whole global batch",
    order=160,
    rests_on=(
        "groups",
        "wrappers",
        "uneven inputs",
        "steps",
        "backwards",
        "loss terms",
        "optimizers",
        "communication hooks",
        "no_sync",
        "parameter names",
    ),
    option="--oracle",
)
