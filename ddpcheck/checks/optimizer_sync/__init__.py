"""``optimizer-sync``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import GROUPS, ORIGINS, Check, Rule

CHECK = Check(
    holds="optimizer state, learning rate and gradient scale are the same on all ranks",
    order=120,
    unit="window",
    rules=(
        Rule("unequal-learning-rates", "ranks step with different learning rates"),
        Rule("unequal-gradient-scales", "ranks step with different gradient scales"),
        Rule("unequal-optimizer-states", "ranks hold different optimizer states, or count steps differently"),
        Rule("repeated-scheduler-steps", "a scheduler steps several times between two optimizer steps"),
        Rule("unequal-skipped-steps", "ranks that hold parts of one model skip different steps"),
        Rule("wrong-learning-rate", "the learning rate is not the one that the scheduler gives for this step"),
        Rule("unequal-epoch-lengths", "the optimizer steps do not divide evenly into the epochs"),
        Rule("unequal-validation-losses", "ranks step the scheduler with different validation losses"),
    ),
    follows=(*ORIGINS, "gradient-sync"),
    rests_on=(*GROUPS, "steps", "optimizers", "scalers", "schedulers"),
)
