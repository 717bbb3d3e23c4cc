"""What metrics come to by mistakes that are often made."""

from __future__ import annotations

import math

import pytest
import torch

from ddpcheck.conformance.losses import METRICS
from ddpcheck.conformance.mistaken_metrics import mistaken


@pytest.mark.parametrize(("number", "ranks"), [(11, 2), (11, 3), (12, 4), (3, 4), (1, 2)])
def test_what_metrics_come_to_by_mistakes(number, ranks):
    draw = torch.Generator().manual_seed(number)
    outputs, targets = (torch.randn(number, 2, generator=draw, dtype=torch.float64) for _ in range(2))
    found = mistaken(METRICS["loss"], outputs, targets, 1, ranks)
    whole = [METRICS["loss"](outputs[place : place + 1], targets[place : place + 1]) for place in range(number)]
    assert found["repeated"] == pytest.approx(
        sum(whole[place % number] for place in range(-(-number // ranks) * ranks)) / (-(-number // ranks) * ranks)
    )
    kept = whole[: number // ranks * ranks]
    assert found["left out"] == (pytest.approx(sum(kept) / len(kept)) if kept else pytest.approx(math.nan, nan_ok=True))
    if number >= ranks:
        own = whole[1::ranks]
        assert found["own"] == pytest.approx(sum(own) / len(own))
        parts = [whole[rank::ranks] for rank in range(ranks)]
        assert found["mean"] == pytest.approx(sum(sum(part) / len(part) for part in parts) / ranks)
    else:
        assert "own" not in found
