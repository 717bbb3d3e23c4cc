"""Where no probe looks at any window, what stands in each step is not asked: the same is on record as if it were."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("quiet_training.py")


def trained(folder: Path, *arguments: str) -> Any:
    folder.mkdir()
    ran = subprocess.run([sys.executable, str(PROGRAM), str(folder), *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_same_is_on_record_as_if_every_window_were_asked_for(tmp_path: Path) -> None:
    """Of two that train against each other, one that steps every third time, and one that comes late."""
    asked, found = trained(tmp_path / "asked", "--always"), trained(tmp_path / "found")
    assert not any(asked["quiet"])
    assert found["records"] == asked["records"]
    kinds = Counter(kind for kind, _ in found["records"])
    assert all(kinds[kind] > 8 for kind in ("Values", "Contributions", "Norm", "Window", "LossWeights")), kinds


def test_most_windows_are_quiet(tmp_path: Path) -> None:
    """Not the first ones of any optimizer, nor the first of one that comes late."""
    quiet = trained(tmp_path / "found")["quiet"]
    assert not any(quiet[: 3 * 8])
    assert not any(quiet[100:107])
    assert sum(quiet[30:100]) > 60
