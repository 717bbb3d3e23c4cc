"""``tied-parameters``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=("what was one parameter before parallelising stays one, or copies that are equal after every step"),
    order=99,
    unit="comparison",
    rules=(Rule("tied-copies-differ", "copies of one parameter, under two names, differ after a step"),),
    follows=("checkpoint-load-complete", "initial-values"),
    rests_on=("module calls", "held state", "parameter names", "steps", "optimizers", "collectives", "sharding"),
)
