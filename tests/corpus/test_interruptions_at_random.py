"""Programs that are right are not accused for having been interrupted, whenever it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

PROGRAMS = [
    "ok_gan",
    "ok_zero_redundancy_resumed",
    "ok_whole_validation",
    "ok_adapted_copies",
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_whenever_it_was(name):
    """Ranks are at different places then, and some are through with what others have yet to begin."""
    ran = subprocess.run([sys.executable, "-m", "tests.corpus.cuts", name], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, ""), ran.stderr
