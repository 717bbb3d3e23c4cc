"""``checkpoint-reshard``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "gathered state before a save equals gathered state after a load, at the same and at another mesh or world "
        "size, by name"
    ),
    order=186,
    follows=("checkpoint-save-complete", "checkpoint-read-after-write", "checkpoint-load-complete"),
    rests_on=(
        "groups", "optimizers", "steps", "parts", "saves", "loads", "state loads", "saved state", "loaded state",
        "module calls",
    ),
)  # fmt: skip
