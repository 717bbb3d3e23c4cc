"""``checkpoint-atomic-save``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="a kill at any moment of a save leaves the checkpoint before it whole",
    order=190,
    unit="save",
    severity="warning",
    rules=(
        Rule("in-place-save", "a save writes straight over an existing checkpoint"),
        Rule(
            "stale-completion-marker",
            "files are replaced while an older marker says that the checkpoint is complete",
            advisory=True,
        ),
        Rule("lost-checkpoint", "a kill during a save leaves no checkpoint that can be loaded"),
        Rule("mixed-checkpoint", "a kill during a save leaves parts of two checkpoints"),
        Rule("interruption-not-tested", "kills could not be planted in all writes of a save"),
    ),
    rests_on=("saves", "saved state", "files that torch.save opens"),
    asserted_on=("files that torch.save opens",),
    assertions=("assert_atomic_save", "assert_checkpoint_resumable"),
)
