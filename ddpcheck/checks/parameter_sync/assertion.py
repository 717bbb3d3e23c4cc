"""``parameter-sync`` at one line of a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpcheck.judging import model_comparison
from ddpcheck.vocabulary.model import Finding, Question


def judge(facts: Sequence[Any], rounds: Sequence[Sequence[Any]]) -> tuple[Finding, ...] | Question:
    """Compare the ranks' tensors by digest, and by their elements where digests differ."""
    return model_comparison.judge("parameter-sync", facts, rounds)
