"""``checkpoint-single-writer``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="one rank writes a path",
    order=30,
    unit="file",
    rules=(
        Rule("several-writers", "several ranks write one file"),
        Rule("unknown-writer", "it is unknown which rank writes a file"),
        Rule("no-write-observed", "no rank was seen to write a file"),
    ),
    follows=("checkpoint-read-after-write",),
    rests_on=("saves", "files that torch.save opens"),
    asserted_on=("saves", "files that torch.save opens"),
    assertions=("assert_single_writer", "assert_checkpoint_resumable"),
)
