"""The invariants: evidence of all ranks in, findings out. No torch, no processes, no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddpcheck.checks import recorded, resuming
from ddpcheck.checks.batch_count import assertion as batches
from ddpcheck.checks.checkpoint_atomic_save import assertion as kills
from ddpcheck.checks.device_placement import assertion as own_devices
from ddpcheck.checks.epoch_reshuffle import assertion as epochs
from ddpcheck.checks.shard_partition import assertion as shards
from ddpcheck.judging import model_comparison
from ddpcheck.vocabulary.model import Finding, Question

JUDGES: dict[str, Callable[[str, Sequence[Any], Sequence[Sequence[Any]]], tuple[Finding, ...] | Question]] = {
    "initial-broadcast": model_comparison.judge,
    "gradient-sync": model_comparison.judge,
    "parameter-sync": model_comparison.judge,
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
