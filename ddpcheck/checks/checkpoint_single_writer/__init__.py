"""``checkpoint-single-writer``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="one rank writes a path",
    order=30,
    follows=("checkpoint-read-after-write",),
    rests_on=(
        "saves",
        "files that torch.save opens",
    ),
    asserted_on=(
        "saves",
        "files that torch.save opens",
    ),
    assertions=("assert_single_writer", "assert_checkpoint_resumable"),
)
