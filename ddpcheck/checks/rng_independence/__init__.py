"""``rng-independence``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=(
        "streams that must differ between ranks (dropout, augmentation) differ, streams that must agree "
        "(shuffling) agree"
    ),
    order=220,
    unit="draw",
    counted=False,
    rules=(
        Rule("same-draws-on-ranks", "ranks draw the same random numbers for dropout or for their samples"),
        Rule("same-draws-each-epoch", "samples get the same random numbers in every epoch"),
        Rule("different-recomputed-draws", "a recomputed forward draws other random numbers than its first run"),
        Rule("same-noise-for-batches", "ranks draw the same random numbers for different batches"),
        Rule("same-dropout-mask", "several batches or ranks get the same dropout mask"),
        Rule("same-augmentation-draws", "several samples are augmented with the same random numbers"),
    ),
    rests_on=("groups", "wrappers", "forwards", "armed forwards", "passes", "random states", "recomputation"),
)
