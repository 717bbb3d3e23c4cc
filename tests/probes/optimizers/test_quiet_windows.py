"""Quiet windows: skipping the probes that record none of them leaves the same records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.probes.optimizers.quiet_training import LATE

PROGRAM = Path(__file__).with_name("quiet_training.py")


def trained(folder: Path, *arguments: str) -> Any:
    folder.mkdir()
    ran = subprocess.run([sys.executable, str(PROGRAM), str(folder), *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_skipping_probes_changes_no_record(tmp_path: Path) -> None:
    """A generator and its judge, an optimizer that steps every other time, and one that begins late."""
    asked, found = trained(tmp_path / "asked", "--always"), trained(tmp_path / "found")
    assert not any(asked["quiet"])
    assert found["records"] == asked["records"]
    kinds = Counter(kind for kind, _ in found["records"])
    assert all(kinds[kind] > 8 for kind in ("Values", "Contributions", "Norm", "Window", "LossWeights")), kinds


def test_most_windows_are_quiet(tmp_path: Path) -> None:
    """The first windows of each optimizer are recorded, also of one that begins late."""
    quiet = trained(tmp_path / "found")["quiet"]
    assert not any(quiet[: 2 * 8])
    assert not any(quiet[LATE : LATE + 7])
    assert sum(quiet[40:100]) > 40
