"""What ``ddpcheck run`` costs a training step: the same script under it and under torchrun alone, in turns."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from figures import Row
from inner import MeasurementFailed
from training import MODELS, WAYS

SCRIPT = Path(__file__).with_name("training.py")
STEPS = {"mlp-100M": 24}
"""Steps of each run, where it is not the script's own number."""
LIMIT = 600.0
MEDIAN, WORST = 1.03, 1.10

ALONE = [sys.executable, "-m", "torch.distributed.run"]
WATCHED = [sys.executable, "-m", "ddpcheck.cli", "run"]


class Slowdown:
    """The steps of all rounds so far, of models that lie on the ranks as copies, or in parts."""

    def __init__(self, way: str, models: tuple[str, ...] = MODELS) -> None:
        assert way in WAYS
        self.way = way
        self.alone: dict[str, list[float]] = {model: [] for model in models}
        self.watched: dict[str, list[float]] = {model: [] for model in models}
        self.ratios: dict[str, list[float]] = {model: [] for model in models}

    def round(self, turn: int) -> None:
        """Run each model both ways, the first to run being another each time."""
        for model in self.alone:
            order = [(self.alone, ALONE), (self.watched, WATCHED)]
            taken = {}
            for into, launcher in order if turn % 2 == 0 else reversed(order):
                seconds = _steps(launcher, model, self.way)
                into[model] += seconds
                taken[launcher[-1]] = statistics.median(seconds)
            self.ratios[model].append(taken[WATCHED[-1]] / taken[ALONE[-1]])

    def rows(self) -> list[Row]:
        """A line for each model, and the median and the worst of them."""
        rows = []
        for model, ratios in self.ratios.items():
            a, w = statistics.median(self.alone[model]), statistics.median(self.watched[model])
            mean = statistics.mean(self.watched[model]) / statistics.mean(self.alone[model])
            rows.append(
                Row(
                    f"{model} (means of all steps: {mean:.3f})",
                    f"{w * 1000:.1f} ms",
                    f"{a * 1000:.1f} ms",
                    f"{statistics.median(ratios):.3f}",
                )
            )
        each = [statistics.median(ratios) for ratios in self.ratios.values()]
        rows.append(_target("the median of the models", statistics.median(each), MEDIAN))
        rows.append(_target("the worst of them", max(each), WORST))
        return rows


def _target(what: str, ratio: float, target: float) -> Row:
    return Row(what, "", "", f"{ratio:.3f}", f"{target:.2f}", ratio <= target)


def _steps(launcher: list[str], model: str, way: str) -> list[float]:
    command = [*launcher, "--nproc-per-node", "2", str(SCRIPT), model, "--way", way]
    if model in STEPS:
        command += ["--steps", str(STEPS[model])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    line = next((one for one in ran.stdout.splitlines() if one.startswith("STEPS ")), None)
    if line is None:
        raise MeasurementFailed(f"{' '.join(command)} printed no steps: {ran.stderr[-500:]}")
    return list(json.loads(line.removeprefix("STEPS ")))
