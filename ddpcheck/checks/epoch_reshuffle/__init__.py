"""``epoch-reshuffle``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="a shuffled sampler gives another order in another epoch",
    order=180,
    follows=("shard-partition",),
    rests_on=("groups", "wrappers", "uneven inputs", "collectives", "backwards", "passes", "samplers"),
    asserted_on=("orders of samplers",),
    assertions=("assert_epochs_reshuffled",),
)
