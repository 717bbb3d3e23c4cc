"""``initial-broadcast``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds=(
        "when DDP's constructor returns, and until the first optimizer step, all ranks hold the same "
        "parameters and buffers"
    ),
    order=100,
    follows=(
        "checkpoint-load-complete",
        "checkpoint-read-after-write",
        "process-hygiene",
        "batch-count",
        "reducer-coverage",
        "collective-order",
        "parameter-sync",
    ),
    rests_on=("groups", "wrappers", "uneven inputs", "steps", "optimizers", "buffers"),
    asserted_on=("steps",),
    assertions=("assert_initial_broadcast", "assert_replicas_identical"),
)
