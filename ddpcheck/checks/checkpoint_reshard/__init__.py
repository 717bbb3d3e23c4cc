"""``checkpoint-reshard``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=(
        "gathered state before a save equals gathered state after a load, at the same and at another mesh or world "
        "size, by name"
    ),
    order=186,
    unit="tensor",
    rules=(
        Rule("reordered-elements", "a tensor comes back with its elements in another order"),
        Rule("part-for-whole", "one rank's part of a tensor is taken for the whole"),
        Rule("changed-values", "a tensor comes back with other values than were saved"),
        Rule("values-of-another-rank", "a rank gets what another rank saved under the same name"),
        Rule("moments-of-another-parameter", "a parameter gets the moments of another parameter"),
        Rule("moments-of-another-rank", "a parameter gets the moments that another rank saved"),
    ),
    follows=("checkpoint-save-complete", "checkpoint-read-after-write", "checkpoint-load-complete"),
    rests_on=(
        "groups", "optimizers", "steps", "parts", "saves", "loads", "state loads", "saved state", "loaded state",
        "module calls",
    ),
)  # fmt: skip
