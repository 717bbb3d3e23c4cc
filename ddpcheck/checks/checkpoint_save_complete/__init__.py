"""``checkpoint-save-complete``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "the saved pieces cover every logical element of parameters, buffers, optimizer, streams and loader, each "
        "once, under a name that means the same on all ranks"
    ),
    order=185,
    follows=("initial-broadcast", "initial-values", "parameter-sync"),
    rests_on=("groups", "optimizers", "steps", "parts", "saves", "saved state", "module calls"),
)
