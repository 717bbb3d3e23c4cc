"""The invariants: evidence of all ranks in, findings out. No torch, no processes, no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddpcheck.checks import batches, epochs, replicas, shards
from ddpcheck.model import Finding, Question

JUDGES: dict[str, Callable[[str, Sequence[Any], Sequence[Sequence[Any]]], tuple[Finding, ...] | Question]] = {
    "initial-broadcast": replicas.judge,
    "gradient-sync": replicas.judge,
    "parameter-sync": replicas.judge,
    "shard-partition": shards.judge,
    "epoch-reshuffle": epochs.judge,
    "batch-count": batches.judge,
}


def judge(check: str, facts: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...] | Question:
    """Judge one check by what each rank has said, and by the ranks' answers to questions, round by round."""
    return JUDGES[check](check, facts, rounds)
