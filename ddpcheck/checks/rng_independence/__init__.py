"""``rng-independence``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "streams that must differ between ranks (dropout, augmentation) differ, streams that must agree "
        "(shuffling) agree"
    ),
    order=220,
    rests_on=("groups", "wrappers", "forwards", "armed forwards", "passes", "random states", "recomputation"),
)
