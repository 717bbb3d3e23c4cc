"""Does one rank write each file of what a test saves?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ddpcheck.checks.checkpoint_single_writer import hidden_writers
from ddpcheck.checks.checkpoint_single_writer.run import judge_files
from ddpcheck.evidence.recorded_save import ASK_ALONE, Alone
from ddpcheck.judging.recorded_section import Recordings
from ddpcheck.vocabulary.model import Finding, Question
from ddpcheck.vocabulary.wording import NOT_CHECKED


def judge(facts: Sequence[Any], rounds: Sequence[Sequence[Any]] = ()) -> tuple[Finding, ...] | Question:
    """Who was seen to write; and, where each rank has saved into a folder of its own, who wrote out of sight."""
    recorded = Recordings(facts)
    if recorded.raised:
        return recorded.raised
    seen = judge_files(recorded.files, saves=True)
    known = recorded.known
    hidden: tuple[Finding, ...] | None = None
    if not seen.findings and all(one.folder for one in known):
        if not rounds:
            return Question(ask=ASK_ALONE)
        alone = [msgspec.convert(answer, Alone) for answer in rounds[0]]
        folders, there = [one.folder for one in known], [one.there for one in known]
        hidden = hidden_writers.judge(recorded.files, folders, there, alone)
    nothing = not seen.checked and hidden is None
    return seen.findings or hidden or ((_nothing_written(len(facts)),) if nothing else ())


def _nothing_written(world_size: int) -> Finding:
    return Finding(
        rule="no-write-observed",
        severity="warning",
        ranks=tuple(range(world_size)),
        subject="save()",
        expected="save() to write a file",
        found="no rank writing one (what another program or a library in C writes, or a memory map, is not seen)",
        advice="Give a function that saves: called on every rank, as the training does, and writing on one of them. "
        "Where it writes out of sight, assert_checkpoint_resumable finds out who does.",
        links=(NOT_CHECKED,),
    )
