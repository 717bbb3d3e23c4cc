"""The suite on Hugging Face accelerate: all of it holds, but for what is known."""

from __future__ import annotations

from typing import Any

import pytest

import ddpcheck

pytest.importorskip("accelerate")

from fixtures.trainers.with_accelerate import EXPECTED, LOSSES, fit


@ddpcheck.parametrize_with_checks(fit, losses=LOSSES, expected_failures=EXPECTED)
def test_trainer(check: Any) -> None:
    check()
