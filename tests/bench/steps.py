"""What ``ddpcheck run`` costs a training step: probes on and off by turns within one run, in processor time."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from figures import Row
from inner import MeasurementFailed
from training import MODELS, RANKS

SCRIPT = Path(__file__).with_name("training.py")
STEPS = {"transformer-10M": 600}
"""Steps of each run, where it is not the script's own number."""
LIMIT = 1800.0
MEDIAN, WORST = 1.03, 1.06

ALONE = [sys.executable, "-m", "torch.distributed.run"]
WATCHED = [sys.executable, "-m", "ddpcheck.cli", "run"]


class Slowdown:
    """All rounds so far, of each model in each way that it may lie on ranks."""

    def __init__(self) -> None:
        self.watched: dict[tuple[str, str], list[dict[str, float]]] = {
            (way, model): [] for way in RANKS for model in MODELS
        }
        self.alone: dict[tuple[str, str], dict[str, float]] = {}

    def round(self) -> None:
        """Run each; the first time once more without ddpcheck, where nothing is turned on and off."""
        for which, runs in self.watched.items():
            runs.append(_blocks(WATCHED, *which))
            if which not in self.alone:
                self.alone[which] = _blocks(ALONE, *which)

    def rows(self) -> list[Row]:
        """A line for each, with what is left where probes are off; and the median and the worst of them."""
        rows, ratios = [], []
        for which, runs in self.watched.items():
            on, off, ratio = (statistics.median(run[name] for run in runs) for name in ("on", "off", "ratio"))
            alone = statistics.mean(self.alone[which][name] for name in ("on", "off"))
            title = f"{' '.join(which)} (off, beside a run alone: {off / alone:.3f})"
            rows.append(Row(title, f"{on:.1f} ms", f"{off:.1f} ms", f"{ratio:.3f}"))
            ratios.append(ratio)
        rows.append(_target("the median of them", statistics.median(ratios), MEDIAN))
        rows.append(_target("the worst of them", max(ratios), WORST))
        return rows


def _target(what: str, ratio: float, target: float) -> Row:
    return Row(what, "", "", f"{ratio:.3f}", f"{target:.2f}", ratio <= target)


def _blocks(launcher: list[str], way: str, model: str) -> dict[str, float]:
    command = [*launcher, "--nproc-per-node", str(RANKS[way]), str(SCRIPT), model, "--way", way]
    if model in STEPS:
        command += ["--steps", str(STEPS[model])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    line = next((one for one in ran.stdout.splitlines() if one.startswith("BLOCKS ")), None)
    if line is None:
        raise MeasurementFailed(f"{' '.join(command)} printed no figures: {ran.stderr[-500:]}")
    found: dict[str, Any] = json.loads(line.removeprefix("BLOCKS "))
    return found
