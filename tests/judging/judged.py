"""What the judges of checks say of a world, or of the facts of an assertion, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpcheck.checks.registry import judge_of
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import Finding

OF_STEPS = ("initial-broadcast", "gradient-sync", "parameter-sync", "reducer-coverage", "optimizer-sync")
"""The checks of what ranks step on."""


def run_judged(over: World, *checks: str) -> list[Judged]:
    """What each of these checks says of a run, in this order."""
    return [judge_of(check, "run")(over) for check in checks]


def run_findings(over: World, *checks: str) -> list[Finding]:
    """What they have found, one after the other."""
    return [finding for judged in run_judged(over, *checks) for finding in judged.findings]


def asserted(check: str, facts: Sequence[Any], rounds: Sequence[Any] = ()) -> Any:
    """What a check says of the ranks' facts in an assertion: findings, or a question."""
    return judge_of(check, "assertion")(facts, rounds)
