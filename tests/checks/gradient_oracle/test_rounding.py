"""A gradient that is right but for single precision is told as that, and not by a mistake that it is like as well."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck.checks.gradient_oracle import conformance as updates
from ddpcheck.evidence.oracle_comparison import ComparedStep, Comparison, Gap, Likeness
from ddpcheck.trainings.situations import BY_NAME
from ddpcheck.trainings.trained_situation import Trained


def cause_of(ratio: float, situation: str = "plain") -> str:
    likeness = Likeness(ratio=ratio, cosine=1.0)
    gap = Gap(name="w", worst=1e-8, allowed=1e-15, index=(0,), found=1.0, expected=1.0, same_bits=False)
    step = ComparedStep(
        step=0, gaps=(gap,), gradient=likeness, update=likeness, others={"means": likeness}, micros=(1,)
    )
    nothing: Any = None
    trained = Trained(BY_NAME[situation], 2, nothing, nothing, "", [], Comparison(steps=(step,)))
    (finding,) = updates.judge(trained).findings
    return finding.cause


@pytest.mark.parametrize("ratio", [1 + 3e-8, 1 - 4e-9])
def test_single_precision_is_told(ratio: float) -> None:
    assert "single precision" in cause_of(ratio)


@pytest.mark.parametrize(("ratio", "situation"), [(1.0, "plain"), (1 + 2e-3, "plain"), (1 + 3e-8, "float32")])
def test_other_gradients_are_not(ratio: float, situation: str) -> None:
    assert "single precision" not in cause_of(ratio, situation)
