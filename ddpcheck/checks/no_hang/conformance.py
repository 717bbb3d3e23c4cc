"""`no-hang` over trainings: each came to an end of its own."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.suite_row import ANY, Row
from ddpcheck.trainings.trained_situation import Trained


def judge(trained: Sequence[Trained]) -> Judged:
    """`no-hang`: every training came to an end of its own."""
    findings = [one.failure() for one in trained if one.hung]
    return Judged(checked=len(trained), findings=tuple(findings[:3]))


ROWS = (Row("no-hang", (ANY,), judge, also_failed=True),)
