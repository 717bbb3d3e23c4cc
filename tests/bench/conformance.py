"""How long the whole conformance suite takes for one trainer, and what one of its trainings costs beside torchrun's."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from figures import Row
from inner import MeasurementFailed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 90.0
"""Seconds for all checks at all world sizes."""

TURNS = 3
_SUITE = """
import json
import ddpcheck
from ddpcheck.conformance.situation_runner import Runner
from fixtures.trainers.plain import fit

trained = []
train = Runner._train

def noted(self, situation, world_size):
    trained.append(situation.name)
    return train(self, situation, world_size)

Runner._train = noted
found = ddpcheck.check_trainer(fit, losses=("samples", "tokens", "pairs"), on_failure="return")
print(json.dumps({"seconds": found.seconds, "held": len(found.of("held")), "ok": found.ok, "trained": len(trained)}))
"""


def measure() -> list[Row]:
    """The plain loop through the suite, once; and one of its trainings by torchrun, a few times."""
    told = json.loads(_run([sys.executable, "-c", _SUITE]).splitlines()[-1])
    if not told["ok"]:
        raise MeasurementFailed(f"the plain loop does not hold: {told}")
    peer = statistics.median(_seconds_under_torchrun() for _ in range(TURNS))
    each = told["seconds"] / told["trained"]
    return [
        Row(
            f"the whole suite, 1 to 4 ranks ({told['trained']} trainings, {told['held']} checks held)",
            f"{told['seconds']:.1f} s",
            "",
            "",
            f"{LIMIT:g} s",
            told["seconds"] <= LIMIT,
        ),
        Row("one training, with its share of all else; 2 ranks under torchrun", f"{each:.2f} s", f"{peer:.2f} s",
            f"{each / peer:.2f}"),
    ]  # fmt: skip


def _seconds_under_torchrun() -> float:
    begun = time.monotonic()
    _run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
          str(HERE / "peer_training.py")])  # fmt: skip
    return time.monotonic() - begun


def _run(command: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise MeasurementFailed(run.stderr[-2000:])
    return run.stdout
