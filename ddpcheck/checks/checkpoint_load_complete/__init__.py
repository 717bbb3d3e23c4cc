"""``checkpoint-load-complete``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="a load leaves no parameter silently untouched",
    order=20,
    follows=("checkpoint-read-after-write",),
    rests_on=(
        "groups",
        "wrappers",
        "collectives",
        "steps",
        "reduced parameters",
        "loads",
        "state loads",
        "drawn weights",
    ),
    asserted_on=("held state", "buffers"),
    assertions=("assert_load_complete", "assert_checkpoint_resumable"),
)
