"""``token-weight``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "every valid token or sample enters an update with the same weight, whichever rank, micro-batch, stage or "
        "expert handled it"
    ),
    order=155,
    rests_on=(
        "groups",
        "wrappers",
        "uneven inputs",
        "steps",
        "backwards",
        "loss terms",
        "optimizers",
        "communication hooks",
        "reduced parameters",
        "no_sync",
        "parameter names",
    ),
)
