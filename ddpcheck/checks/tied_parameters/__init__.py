"""``tied-parameters``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=("what was one parameter before parallelising stays one, or copies that are equal after every step"),
    order=99,
    unit="comparison",
    rules=(
        Rule("tied-copies-differ", "parameters that were tied differ after a step"),
        Rule("summed-copies-differ", "parameters with summed gradients differ between ranks after each step"),
    ),
    follows=("checkpoint-load-complete", "initial-values"),
    rests_on=("module calls", "held state", "parameter names", "steps", "optimizers", "collectives", "sharding"),
)
