"""``initial-broadcast``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import GROUPS, ORIGINS, Check, Rule

CHECK = Check(
    holds=(
        "when DDP's constructor returns, and until the first optimizer step, all ranks hold the same "
        "parameters and buffers"
    ),
    order=100,
    unit="model",
    rules=(
        Rule("different-initial-state", "ranks hold different parameters or buffers before the first step"),
        Rule("wrong-wrapper-group", "DDP wraps a model over ranks that hold different parts of it"),
    ),
    follows=(*ORIGINS, "parameter-sync"),
    rests_on=(*GROUPS, "steps", "optimizers", "buffers"),
    asserted_on=("steps",),
    assertions=("assert_initial_broadcast", "assert_replicas_identical"),
)
