"""``parameter-sync``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import GROUPS, ORIGINS, Check, Rule

CHECK = Check(
    holds="after every optimizer step all ranks hold the same parameters",
    order=130,
    unit="window",
    rules=(
        Rule("different-parameters", "ranks hold different parameters after a step, or when they receive them"),
        Rule("different-evaluated-copy", "ranks evaluate different parameters of a model that has no wrapper"),
        Rule("unequal-after-averaging", "parameters differ after an exchange that made them equal before"),
        Rule("parameters-never-averaged", "some parameters, or ranks, are left out whenever others are averaged"),
        Rule("average-not-applied", "an average of the parameters is computed, and not written on all ranks"),
        Rule("average-off-by-factor", "the shares of the models in an average do not add up to 1"),
        Rule("unequal-step-counts", "ranks make different numbers of optimizer steps"),
    ),
    follows=(*ORIGINS, "initial-broadcast", "gradient-sync", "optimizer-sync"),
    rests_on=(*GROUPS, "collectives", "steps", "optimizers", "reduced parameters", "module calls"),
    assertions=("assert_parameters_identical", "assert_replicas_identical"),
)
