"""Tests of an inner session that step once: ``BENCH_TESTS`` in each way, at each world size in ``BENCH_RANKS``."""

from __future__ import annotations

import os
from typing import Any

import body
import pytest

import ddpcheck

RANKS = [int(size) for size in os.environ["BENCH_RANKS"].split(",")]
TESTS = int(os.environ["BENCH_TESTS"])

pytestmark = pytest.mark.ddp(world_size=RANKS, timeout=120)


@pytest.mark.parametrize("turn", range(TESTS))
def test_compared(ddp: Any, turn: int) -> None:
    body.step_and_compare()


@pytest.mark.parametrize("turn", range(TESTS))
def test_asserted(ddp: Any, turn: int) -> None:
    ddpcheck.assert_replicas_identical(body.trained())
