"""How much longer a small training takes under ddpcheck, and what its probes say that their looks have cost."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddpcheck.evidence import LookCosts, Overlooked
from ddpcheck.judging.evidence_folder import Folder
from tests.gpu import scripts

SCRIPT = Path(__file__).with_name("small_training.py")
LIMIT = 300.0
NOT_MEASURED = "not measured"


class SlowDown(NamedTuple):
    """The best of several runs each way."""

    steps: int
    step_alone: float
    step_watched: float
    memory_alone: int
    memory_watched: int
    parameters: int
    costs: list[dict[str, Any]]
    """Of the last watched run, for each process that has looked."""

    @property
    def ratio(self) -> float:
        return self.step_watched / self.step_alone


class NoFigure(Exception):
    """A run has not come to its end; says what it printed."""


def measure(
    folder: Path,
    steps: int,
    backend: str,
    environment: dict[str, str],
    ranks: int = 2,
    runs: int = 3,
    arguments: Sequence[str] = (),
    repeats: int = 0,
) -> SlowDown:
    """Run the training by turns alone and watched, and take the best of each; raises NoFigure."""
    environment = {**os.environ, **environment, "BACKEND": backend, "OMP_NUM_THREADS": "1"}
    if not repeats:
        repeats = _trained(folder, _alone(ranks), 0, 0, environment, arguments)["repeats"]
    alone, watched = [], []
    for number in range(runs):
        alone.append(_trained(folder, _alone(ranks), steps, repeats, environment, arguments))
        command = _watched(folder, number, ranks)
        watched.append(_trained(folder, command, steps, repeats, environment, arguments))
    return SlowDown(
        steps=steps,
        step_alone=min(one["seconds"] for one in alone) / steps,
        step_watched=min(one["seconds"] for one in watched) / steps,
        memory_alone=min(one["peak_memory"] for one in alone),
        memory_watched=min(one["peak_memory"] for one in watched),
        parameters=alone[0]["parameters"],
        costs=costs(folder / f"evidence-{runs - 1}"),
    )


def _alone(ranks: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]


def _watched(folder: Path, number: int, ranks: int) -> list[str]:
    evidence = ["--evidence", str(folder / f"evidence-{number}"), "--json", str(folder / "verdict.json")]
    command = [sys.executable, "-m", "ddpcheck.cli", "run", *evidence, "--skip", "device-placement"]
    return [*command, "--standalone", "--nproc-per-node", str(ranks)]


def _trained(
    folder: Path,
    command: Sequence[str],
    steps: int,
    repeats: int,
    environment: dict[str, str],
    arguments: Sequence[str],
) -> dict[str, Any]:
    out = folder / "figures.json"
    out.unlink(missing_ok=True)
    ended = scripts.run(
        [*command, str(SCRIPT), str(out), str(steps), str(repeats), *arguments], folder, LIMIT, environment
    )
    # What is found wrong is not asked here: the training alone is.
    if not out.exists():
        raise NoFigure(f"{'no end' if ended.timed_out else ended.code} after {ended.seconds:.0f} s\n{ended.output}")
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def costs(evidence: Path) -> list[dict[str, Any]]:
    """What the probes of each rank have measured of their own looks; what they have not is said to be so."""
    folder = Folder(evidence)
    folder.read()
    found = []
    for name, process in sorted(folder.processes.items()):
        rank = next((record.rank for record in process.records if hasattr(record, "rank")), None)
        if rank is None:
            continue
        last = process.last(LookCosts)
        measured = {
            field: NOT_MEASURED if last is None or getattr(last, field) is None else getattr(last, field)
            for field in LookCosts.__struct_fields__
            if field not in ("n", "at")
        }
        overlooked = sorted({record.what for record in process.of(Overlooked)})
        found.append({"process": name, "rank": rank, **measured, "overlooked": overlooked})
    return found
