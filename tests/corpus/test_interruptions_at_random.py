"""Programs that are right are not accused for having been interrupted, whenever it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAMS = [
    "ok_gan",
    pytest.param("ok_zero_redundancy_resumed", marks=pytest.mark.long),
    pytest.param("ok_whole_validation", marks=pytest.mark.long),
    pytest.param("ok_adapted_copies", marks=pytest.mark.long),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_whenever_it_was(name):
    """Ranks are at different places then, and some are through with what others have yet to begin."""
    ran = subprocess.run([sys.executable, "-m", "tests.corpus.cuts", name], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, ""), ran.stderr
