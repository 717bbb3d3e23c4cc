"""The programs of the documents that teach DDP: what ``ddpcheck run`` says of each."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

EXPECTED = {
    "s0_basic": [],
    "s0_checkpoint": [],
    "s0_model_parallel": [],
    "s2_breast_cancer --epochs 2": [],
    "s3_ten_steps": [],
    "s4_pitfalls": [],
    "s4_pitfalls --no-sampler": ["shard-partition"],
    "s4_pitfalls --all-save": ["checkpoint-single-writer"],
    "s4_pitfalls --move-apart": [],
    "s4_pitfalls --wrap-first": [],
}


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items())
def test_a_program(name, expected, recorded):
    """Its ranks end well, and the errors are the ones that it plants."""
    ran = recorded(f"documents/{name}")
    assert ran.exits == {0: 0, 1: 0}
    assert [f.check for f in ran.verdict.findings if f.severity == "error"] == expected
    assert ran.verdict.checks["gradient-sync"].checked


@pytest.mark.parametrize("set_epoch", [False, True], ids=["as-it-is", "fixed"])
def test_the_digits_program_never_reshuffles(set_epoch, recorded):
    """S1 spawns its ranks, which are followed; it never calls set_epoch, and is silent once that is fixed."""
    ran = recorded(f"documents/s1_digits --processes 2 --epochs 2{' --set-epoch' if set_epoch else ''}")
    assert [f.check for f in ran.verdict.findings] == ([] if set_epoch else ["epoch-reshuffle"])
    assert ran.verdict.exit_code() == int(not set_epoch)
    if not set_epoch:
        where = ran.verdict.findings[0].where
        assert where is not None
        line = (ROOT / "fixtures" / "s1_digits.py").read_text().splitlines()[where.line - 1]
        assert "for images, digits in loader" in line
