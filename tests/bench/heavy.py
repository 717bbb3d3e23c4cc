"""What ``ddpcheck run`` costs a program of 5,000 parameters, 600 loaders and 4,000 tiny steps: its processor time."""

from __future__ import annotations

import resource
import statistics
import subprocess
from pathlib import Path

from figures import Row
from inner import MeasurementFailed
from steps import ALONE, LIMIT, WATCHED

SCRIPT = Path(__file__).parents[2] / "fixtures" / "cases" / "hostile" / "heavy.py"
TARGET = 2.0
"""Nearly all of it is what probes cost a step whatever its size."""


def measure(rounds: int) -> list[Row]:
    """Both ways, in turns."""
    alone, watched = zip(*((_seconds(ALONE), _seconds(WATCHED)) for _ in range(rounds)), strict=True)
    one, other = statistics.median(alone), statistics.median(watched)
    ratio = other / one
    return [Row(SCRIPT.stem, f"{other:.1f} s", f"{one:.1f} s", f"{ratio:.2f}", f"{TARGET:.2f}", ratio <= TARGET)]


def _seconds(launcher: list[str]) -> float:
    before = _of_children()
    command = [*launcher, "--nproc-per-node", "2", str(SCRIPT)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if ran.returncode:
        raise MeasurementFailed(f"{' '.join(command)} ended with {ran.returncode}: {ran.stderr[-500:]}")
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
