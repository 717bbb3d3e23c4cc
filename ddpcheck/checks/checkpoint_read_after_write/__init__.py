"""``checkpoint-read-after-write``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="no rank reads a checkpoint before its write is complete, none deletes it before the last read",
    order=40,
    unit="access",
    rules=(
        Rule("unsynchronised-read", "a rank reads a file without waiting for the rank that writes it"),
        Rule("unsynchronised-file-check", "a rank checks for a file without waiting for the rank that writes it"),
        Rule("unsynchronised-removal", "a rank removes a file without waiting for the ranks that read it"),
        Rule("load-during-async-save", "a checkpoint is loaded while an asynchronous save still writes it"),
        Rule("no-read-observed", "no rank was seen to read a saved file"),
    ),
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
        "files that torch.save opens",
    ),
    assertions=("assert_read_after_write", "assert_checkpoint_resumable"),
)
