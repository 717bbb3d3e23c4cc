"""``batch-count``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "all ranks yield the same number of batches: the one that dataset size, world size, batch size "
        "and drop_last imply"
    ),
    order=70,
    follows=("shard-partition",),
    rests_on=("groups", "wrappers", "uneven inputs", "collectives", "backwards", "passes", "samplers"),
    assertions=("assert_batch_count",),
)
