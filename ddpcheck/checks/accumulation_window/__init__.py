"""``accumulation-window``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=(
        "inside a window gradients are only added to: not overwritten, rescaled, thrown away or stepped; a window has "
        "one step"
    ),
    order=104,
    unit="window",
    rules=(
        Rule("rescaled-gradients", "accumulated gradients are rescaled between micro-batches"),
        Rule("lost-gradients", "accumulated gradients disappear before the step of their window"),
        Rule("overwritten-gradients", "a reduction overwrites accumulated gradients instead of adding to them"),
        Rule("missing-zero-grad", "gradients of earlier steps remain when the next window begins"),
        Rule("step-without-reduction", "the optimizer steps while gradient reduction is switched off"),
    ),
    follows=("reducer-coverage",),
    rests_on=(
        "backwards",
        "contributions",
        "steps",
        "optimizers",
        "module calls",
        "parameter names",
        "norms",
        "unreduced backwards",
    ),
)
