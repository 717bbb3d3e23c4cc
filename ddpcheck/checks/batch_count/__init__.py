"""``batch-count``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import GROUPS, Check, Rule

CHECK = Check(
    holds=(
        "all ranks yield the same number of batches: the one that dataset size, world size, batch size "
        "and drop_last imply"
    ),
    order=70,
    unit="pass",
    rules=(
        Rule("unequal-batch-counts", "ranks take different numbers of batches"),
        Rule("unexpected-batch-count", "the number of batches does not follow from dataset size and world size"),
        Rule("no-batches", "no rank has a batch"),
    ),
    follows=("shard-partition",),
    rests_on=(*GROUPS, "collectives", "backwards", "passes", "samplers"),
    assertions=("assert_batch_count",),
)
