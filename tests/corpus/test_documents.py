"""The programs of the documents that teach DDP: what ``ddpcheck run`` says of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.schema_validation import validate

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

EXPECTED = [
    ("s0_basic", [], []),
    ("s0_checkpoint", [], []),
    ("s0_model_parallel", [], []),
    ("s2_breast_cancer", ["--epochs", "2"], []),
    ("s3_ten_steps", [], []),
    ("s4_pitfalls", [], []),
    ("s4_pitfalls", ["--no-sampler"], ["shard-partition"]),
    ("s4_pitfalls", ["--all-save"], ["checkpoint-single-writer"]),
    ("s4_pitfalls", ["--move-apart"], []),
    ("s4_pitfalls", ["--wrap-first"], []),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), EXPECTED, ids=lambda value: str(value))
def test_a_program(name, arguments, expected, ask):
    """Its ranks end well, and the errors are the ones that it plants."""
    said = json.loads(ask(ROOT / "fixtures" / f"{name}.py", *arguments))
    assert said["exits"] == {"0": 0, "1": 0}
    assert [f["check"] for f in said["findings"] if f["severity"] == "error"] == expected
    assert said["checked"]["gradient-sync"]


@pytest.mark.parametrize("set_epoch", [False, True], ids=["as-it-is", "fixed"])
def test_the_digits_program_never_reshuffles(set_epoch, tmp_path):
    """S1 spawns its ranks, which are followed; it never calls set_epoch, and is silent once that is fixed."""
    target = tmp_path / "verdict.json"
    options = ["--processes", "2", "--epochs", "2", *(["--set-epoch"] if set_epoch else [])]
    ran = subprocess.run(
        [sys.executable, "-m", "ddpcheck.cli", "run", "--json", target, "fixtures/s1_digits.py", *options],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    document = json.loads(target.read_text())
    validate(document, "run")
    assert [f["check"] for f in document["findings"]] == ([] if set_epoch else ["epoch-reshuffle"]), ran.stderr
    assert ran.returncode == int(not set_epoch)
    if not set_epoch:
        where = document["findings"][0]["where"]
        line = (ROOT / "fixtures" / "s1_digits.py").read_text().splitlines()[where["line"] - 1]
        assert "for images, digits in loader" in line
