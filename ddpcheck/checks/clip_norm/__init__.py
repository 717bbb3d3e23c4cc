"""``clip-norm``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "the norm used to clip is that of the whole, reduced, unscaled gradient, each logical element counted once, "
        "and every rank scales by the same factor"
    ),
    order=106,
    follows=("reducer-coverage",),
    rests_on=("norms", "backwards", "steps", "optimizers", "parts", "sharding", "collectives"),
)
