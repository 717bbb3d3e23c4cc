"""``gradient-sync``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import CALLS, GROUPS, ORIGINS, Check, Rule

CHECK = Check(
    holds="on entry to every optimizer step all ranks hold the same gradients",
    order=110,
    unit="window",
    rules=(
        Rule("different-gradients", "ranks hold different gradients on entry to a step, or none on some ranks"),
        Rule("unequal-step-counts", "ranks make different numbers of optimizer steps"),
        Rule("skipped-reduction", "the gradients of some steps are not reduced"),
        Rule("reduction-to-one-rank", "gradients are reduced to one rank, although all ranks step"),
    ),
    follows=(*ORIGINS, "initial-broadcast", "forward-mode", "optimizer-sync", "parameter-sync"),
    rests_on=(*GROUPS, *CALLS, "steps", "optimizers", "no_sync", "conversions", "scalers"),
    assertions=("assert_gradients_identical",),
)
