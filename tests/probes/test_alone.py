"""The files of tests that put all probes in place, each in an interpreter of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import progress

HERE = Path(__file__).parent / "alone"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("__init__", "conftest"))
)
def test_a_file_by_itself(name):
    """All of its tests pass."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(HERE / f"{name}.py"),
    ]
    ran = progress.run(command, cwd=ROOT, text=True)
    if ran.returncode == pytest.ExitCode.NO_TESTS_COLLECTED and " skipped" in ran.stdout:  # the file as a whole
        pytest.skip(f"{name}: not on this torch")
    assert ran.returncode == 0, ran.stdout[-4000:]
    if " passed" not in ran.stdout:
        assert " skipped" in ran.stdout
        pytest.skip(f"{name}: every test was skipped")
