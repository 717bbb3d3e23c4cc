"""``checkpoint-map-location``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="a load keeps a rank on its own device",
    order=200,
    rests_on=("groups", "wrappers", "steps", "loads"),
    asserted_on=("loads",),
    assertions=("assert_map_location", "assert_checkpoint_resumable"),
)
