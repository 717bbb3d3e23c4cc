"""``optimizer-coverage``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds=(
        "the optimizers hold exactly the live trainable parameters; every logical element is updated by one owner, or "
        "by all its holders alike"
    ),
    order=97,
    unit="optimizer",
    rules=(
        Rule("stale-parameters", "an optimizer holds tensors that are no longer parameters of the model"),
        Rule("state-of-wrong-shape", "optimizer state of a sharded parameter is declared with another whole shape"),
        Rule("parameter-in-no-optimizer", "a trainable parameter gets gradients and is in no optimizer"),
        Rule("stage-in-no-optimizer", "no parameter of a pipeline stage is in an optimizer"),
        Rule("step-on-zeroed-gradients", "a rank steps on zeros although backward() computed gradients"),
    ),
    rests_on=("module calls", "optimizers", "steps", "parameter names", "backwards", "collectives", "schedulers"),
)
