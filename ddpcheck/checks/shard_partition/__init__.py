"""``shard-partition``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=("within an epoch the ranks' samples, judged by content, are disjoint and cover the dataset (padding aside)"),
    order=60,
    rests_on=(
        "groups",
        "wrappers",
        "uneven inputs",
        "collectives",
        "forwards",
        "backwards",
        "passes",
        "samplers",
        "parts of batches",
    ),
    assertions=("assert_shards_partition",),
)
