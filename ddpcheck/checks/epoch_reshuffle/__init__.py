"""``epoch-reshuffle``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import GROUPS, Check, Rule

CHECK = Check(
    holds="a shuffled sampler gives another order in another epoch",
    order=180,
    unit="reshuffle",
    rules=(
        Rule("same-order-each-epoch", "a sampler that shuffles gives the same order in several epochs"),
        Rule("batches-of-first-pass-again", "the batches of a shuffled pass are trained on over and over"),
        Rule("outdated-dataset-in-workers", "worker processes read a dataset as it was before the program changed it"),
    ),
    follows=("shard-partition",),
    rests_on=(*GROUPS, "collectives", "backwards", "passes", "samplers"),
    asserted_on=("orders of samplers",),
    assertions=("assert_epochs_reshuffled",),
)
