"""``collective-order``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="all ranks issue the same collectives in the same order",
    order=90,
    told_at_end=True,
    follows=("batch-count", "reducer-coverage", "rank-failure", "no-hang"),
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
    ),
)
