"""``reducer-coverage``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "every parameter that an optimizer updates is reduced by a DDP module, its forward went through "
        "the wrapper, and each step was armed exactly once"
    ),
    order=80,
    rests_on=(
        "groups",
        "wrappers",
        "uneven inputs",
        "collectives",
        "steps",
        "forwards",
        "backwards",
        "armed forwards",
        "optimizers",
        "reduced parameters",
        "reductions",
        "no_sync",
        "module calls",
        "parameter names",
        "held state",
    ),
)
