"""``checkpoint-read-after-write``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="no rank reads a checkpoint before its write is complete, none deletes it before the last read",
    order=40,
    follows=("checkpoint-single-writer",),
    rests_on=(
        "groups",
        "collectives",
        "steps",
        "saves",
        "saved state",
        "loads",
        "loaded state",
        "waits for files",
        "files that torch.save opens",
    ),
    asserted_on=(
        "ranks",
        "groups",
        "wrappers",
        "collectives",
        "backwards",
        "armed forwards",
        "reductions",
        "saves",
        "loads",
        "unfinished calls",
        "waits for files",
        "methods of groups",
        "files that torch.save opens",
    ),
    assertions=("assert_read_after_write", "assert_checkpoint_resumable"),
)
