"""``checkpoint-map-location``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="a load keeps a rank on its own device",
    order=200,
    unit="load",
    rules=(
        Rule("load-on-wrong-gpu", "a load puts tensors on a GPU of another rank"),
        Rule("tensors-moved-by-load", "a load moves tensors of the training to another device"),
        Rule("no-map-location", "a load of another rank's save does not set map_location"),
        Rule("model-on-cpu", "a rank computes on the CPU instead of its device"),
    ),
    rests_on=("groups", "wrappers", "steps", "loads"),
    asserted_on=("loads",),
    assertions=("assert_map_location", "assert_checkpoint_resumable"),
)
