"""Faults that what a program does with each batch makes likely: equal noise, and windows of one micro-batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import run

CASES = Path(__file__).parents[2] / "fixtures" / "cases" / "run"
PROGRAMS = [
    ("noise_alike", 4, "rng-independence", "torch.manual_seed(100"),
    ("zeroed_within", 2, "accumulation-window", "backward()"),
]


@pytest.mark.parametrize(("name", "ranks", "check", "line"), PROGRAMS, ids=[one[0] for one in PROGRAMS])
def test_a_warning_at_the_line_and_a_silent_twin(tmp_path, forks, name, ranks, check, line):
    program = CASES / f"{name}.py"
    ran = run(tmp_path, f"--nproc-per-node={ranks}", program, forks=forks)
    assert "ddpcheck itself" not in ran.err, ran.err
    (found,) = ran.document["findings"]
    assert (found["check"], found["severity"]) == (check, "warning")
    assert line in program.read_text().splitlines()[found["where"]["line"] - 1]
    twin = run(tmp_path, f"--nproc-per-node={ranks}", program, "--fixed", forks=forks)
    assert twin.document["findings"] == []
    assert twin.document["checks"][check]["status"] == "held"
