"""``checkpoint-save-complete``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=(
        "the saved pieces cover every logical element of parameters, buffers, optimizer, streams and loader, each "
        "once, under a name that means the same on all ranks"
    ),
    order=185,
    unit="checkpoint",
    rules=(
        Rule("missing-shards", "no rank saves some elements of a sharded tensor"),
        Rule("missing-optimizer-state", "optimizer state that other ranks hold is not saved"),
        Rule("conflicting-weights", "ranks save different parameters or moments under one name"),
        Rule("conflicting-random-states", "ranks save different random states under one name"),
        Rule("conflicting-values", "ranks save different values under one name"),
    ),
    follows=("initial-broadcast", "initial-values", "parameter-sync"),
    rests_on=("groups", "optimizers", "steps", "parts", "saves", "saved state", "module calls"),
)
