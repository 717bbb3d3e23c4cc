"""``checkpoint-atomic-save``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="a kill at any moment of a save leaves the checkpoint before it whole",
    order=190,
    severity="warning",
    rests_on=(
        "saves",
        "saved state",
        "files that torch.save opens",
    ),
    asserted_on=("files that torch.save opens",),
    assertions=("assert_atomic_save", "assert_checkpoint_resumable"),
)
