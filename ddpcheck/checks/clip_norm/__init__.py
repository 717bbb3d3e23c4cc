"""``clip-norm``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=(
        "the norm used to clip is that of the whole, reduced, unscaled gradient, each logical element counted once, "
        "and every rank scales by the same factor"
    ),
    order=106,
    unit="window",
    rules=(
        Rule("unequal-scale-factors", "ranks that hold parts of one model scale gradients by different factors"),
        Rule("copies-counted-repeatedly", "the clipping norm counts gradients of replicated parameters several times"),
        Rule(
            "all-gradients-counted-repeatedly",
            "squares of gradients that all ranks hold alike are summed up over the ranks",
            advisory=True,
        ),
        Rule("wrong-norm", "the clipping norm leaves parameters out, or is not the root of the sum of all squares"),
        Rule("clip-before-unscale", "gradients are clipped before the scaler divides them"),
        Rule("clip-before-reduction", "each rank clips its own gradient, before those of all ranks are added up"),
        Rule("partial-value-read", "a norm or sum of a DTensor is read before its parts are combined"),
    ),
    follows=("reducer-coverage",),
    rests_on=("norms", "backwards", "steps", "optimizers", "parts", "sharding", "collectives"),
)
