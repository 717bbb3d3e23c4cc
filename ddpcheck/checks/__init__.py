"""The invariants: evidence of all ranks in, findings out. No torch, no processes, no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddpcheck.checks import batches, epochs, kills, own_devices, recorded, replicas, resuming, shards
from ddpcheck.model import Finding, Question

JUDGES: dict[str, Callable[[str, Sequence[Any], Sequence[Sequence[Any]]], tuple[Finding, ...] | Question]] = {
    "initial-broadcast": replicas.judge,
    "gradient-sync": replicas.judge,
    "parameter-sync": replicas.judge,
    "shard-partition": shards.judge,
    "epoch-reshuffle": epochs.judge,
    "batch-count": batches.judge,
    "device-placement": own_devices.judge,
    "checkpoint-single-writer": recorded.judge,
    "checkpoint-atomic-save": kills.judge,
    "checkpoint-read-after-write": recorded.judge,
    "checkpoint-map-location": recorded.judge,
    "checkpoint-load-complete": resuming.judge,
    "resume-equivalence": resuming.judge,
}


def judge(check: str, facts: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...] | Question:
    """Judge one check by what each rank has said, and by the ranks' answers to questions, round by round."""
    return JUDGES[check](check, facts, rounds)
