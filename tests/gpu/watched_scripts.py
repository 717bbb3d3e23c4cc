"""Scripts that train on GPUs, as the tests run them: under ``ddpcheck run``, and under torchrun for comparison."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.gpu import scripts
from tests.gpu.sharing import environment_for
from tests.report.schema_validation import validate

HEAD = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if "SIMULATED" in os.environ:
    import ddpcheck
    devices = ddpcheck.simulated_devices(int(os.environ["SIMULATED"]))
    devices.__enter__()
rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
fault = "--fault" in sys.argv
device = torch.device("cuda", local_rank % torch.cuda.device_count())
torch.cuda.set_device(device)
dist.init_process_group(os.environ["BACKEND"])
torch.manual_seed(1 + rank)
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)).to(device)

def setup(optimizer=torch.optim.SGD, lr=0.1, **how):
    model = DistributedDataParallel(net, device_ids=[device.index], **how)
    return model, optimizer(model.parameters(), lr=lr)

def step(model, optimizer, forward=None):
    optimizer.zero_grad()
    (forward or model)(torch.randn(4, 8).to(device)).square().mean().backward()
    optimizer.step()
"""


LIMIT = 300.0
"""Seconds for one script, with the first start of NCCL."""


class Watched(NamedTuple):
    """What came of a script under the command."""

    code: int
    document: dict[str, Any]
    printed: str
    seconds: float
    left: tuple[str, ...]
    """Processes that were left behind."""


def written(folder: Path, body: str) -> Path:
    """A script in a folder, with the beginning and the end that all have."""
    script = folder / "train.py"
    script.write_text(HEAD + textwrap.dedent(body) + "\ndist.destroy_process_group()\n")
    return script


def line_of(script: Path, mark: str) -> int:
    """The number of the line that has this comment."""
    return next(n for n, line in enumerate(script.read_text().splitlines(), 1) if line.endswith(f"# {mark}"))


def watch(
    folder: Path,
    body: str,
    backend: str,
    simulated: bool = False,
    *arguments: str,
    skip: str = "device-placement",
    options: Sequence[str] = (),
    stall: int = 30,
    environment: Mapping[str, str] | None = None,
) -> Watched:
    """Run a script under the command."""
    script = written(folder, body)
    skipped = ["--skip", skip] if skip else []
    ended = scripts.run(
        [
            sys.executable, "-m", "ddpcheck.cli", "run", "--json", folder / "verdict.json", "--evidence",
            folder / "evidence", "--stall-timeout", str(stall), *skipped, *options, "--standalone", "--nproc-per-node",
            "2", script, *arguments,
        ],
        folder,
        LIMIT,
        _environment(backend, simulated, environment),
    )  # fmt: skip
    (folder / "printed.txt").write_text(ended.output)
    assert not ended.timed_out, f"it did not end within {LIMIT:.0f} s, and had printed\n{ended.output}"
    document = json.loads((folder / "verdict.json").read_text())
    validate(document, "run")
    return Watched(ended.code, document, ended.output, ended.seconds, ended.left)


def command(
    folder: Path,
    body: str,
    backend: str,
    simulated: bool,
    *arguments: str,
    skip: str = "device-placement",
    gpus: int = 2,
) -> tuple[int, dict[str, Any], str]:
    """The same: its exit code, the document, and what was printed; ``gpus`` is how many simulated ones there are."""
    environment = {"SIMULATED": str(gpus)} if simulated else None
    return watch(folder, body, backend, simulated, *arguments, skip=skip, environment=environment)[:3]


def alone(folder: Path, body: str, backend: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a script under torchrun, which has to succeed: what was printed."""
    script = written(folder, body)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = scripts.run([*torchrun, str(script)], folder, LIMIT, _environment(backend, False, environment))
    (folder / "alone.txt").write_text(ended.output)
    assert ended.code == 0, f"without ddpcheck:\n{ended.output}"
    return ended.output


def said(printed: str, name: str) -> list[str]:
    """The values of the lines ``name=value``, which ranks print, sorted."""
    return sorted(line.partition("=")[2] for line in printed.splitlines() if line.startswith(f"{name}="))


def _environment(backend: str, simulated: bool, further: Mapping[str, str] | None) -> dict[str, str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BACKEND": backend, **(further or {})}
    if simulated:
        return {"SIMULATED": "2", **environment}
    return environment | environment_for(backend, 2)
