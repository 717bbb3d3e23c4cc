"""``weight-sync``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=(
        "a second model that is meant to follow the trained one (rollout engine, EMA, teacher, exported weights) holds "
        "what it was to take over, under every name, when it is used"
    ),
    order=188,
    unit="use",
    rules=(
        Rule("tensors-left-out", "a model follows a trained one in most tensors, and some are never written to"),
        Rule("tensor-of-another-name", "a model follows a trained one, and some tensors get those of other names"),
        Rule("follower-of-another-model", "a model follows another one than it was a copy of", advisory=True),
        Rule("tensors-of-another-moment", "a model follows a trained one, and some tensors are of another step"),
    ),
    rests_on=("groups", "optimizers", "steps", "module calls"),
)
