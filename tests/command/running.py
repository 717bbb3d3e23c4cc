"""Runs the command on scripts that a test writes down, as a user would from a shell."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.command.forks import Command, Forks
from tests.inner import CI, interruptible
from tests.progress import PATIENCE, NoProgress, communicate, kill
from tests.report.schema_validation import validate

COMMAND = [sys.executable, "-m", "ddpcheck.cli", "run"]

TRAINING = """
import argparse, os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def setup():
    dist.init_process_group("gloo")
    torch.manual_seed(1 + dist.get_rank())
    model = DistributedDataParallel(nn.Linear(4, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def step(model, optimizer, forward=None):
    optimizer.zero_grad()
    (forward or model)(torch.randn(8, 4)).sum().backward()
    optimizer.step()

"""
"""What the scripts of the tests begin with."""


@dataclass
class Ran:
    """What came of one call of the command."""

    code: int
    out: str
    err: str
    seconds: float
    document: dict[str, Any] | None

    @property
    def found(self) -> list[str]:
        """The checks of the findings, in their order."""
        assert self.document is not None, self.err
        return [finding["check"] for finding in self.document["findings"]]


def script(folder: Path, body: str, name: str = "train.py", head: str = TRAINING) -> Path:
    """A script in a folder."""
    path = folder / name
    path.write_text(head + textwrap.dedent(body))
    return path


def begin(
    folder: Path,
    *arguments: str | bytes | Path,
    env: dict[str, str] | None = None,
    forks: Forks | None = None,
    errors: Path | None = None,
) -> subprocess.Popen[str] | Command:
    """Start the command in a folder, in a process group of its own; with ``forks`` it needs no interpreters.

    What it writes to stderr goes to the file ``errors``, if there is one, where it can be read while it runs.
    """
    meeting = ("--standalone", "--nnodes", "--rdzv", "--master")
    if "--nproc-per-node" in arguments and not any(str(a).startswith(meeting) for a in arguments):
        arguments = ("--standalone", *arguments)  # without it, torchrun of an older torch takes a port that is fixed
    outer = {name: value for name, value in os.environ.items() if name not in CI}
    environment = {**outer, "OMP_NUM_THREADS": "1", **(env or {})}
    environment.pop("PYTEST_CURRENT_TEST", None)
    if forks is not None:
        return forks.start(["run", *map(os.fsdecode, arguments)], folder, environment, errors)
    with contextlib.ExitStack() as opened:
        return subprocess.Popen(
            [*COMMAND, *map(os.fsdecode, arguments)],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if errors is None else opened.enter_context(errors.open("w")),
            text=True,
            start_new_session=True,
            preexec_fn=interruptible,
        )


def finish(process: subprocess.Popen[str] | Command, json_file: Path | None = None, began: float = 0.0) -> Ran:
    """Wait for its end."""
    try:
        out, err = communicate(process, patience=PATIENCE)
    except NoProgress as error:
        kill(process.pid)
        out, err = process.communicate()
        raise AssertionError(f"the command did not end: {error}; it had printed\n{out}\n{err}") from None
    document = json.loads(json_file.read_text()) if json_file is not None and json_file.exists() else None
    if document is not None:
        validate(document, "run")
    return Ran(process.returncode, out, err, time.monotonic() - began, document)


def run(
    folder: Path, *arguments: str | bytes | Path, env: dict[str, str] | None = None, forks: Forks | None = None
) -> Ran:
    """Run the command in a folder, with ``--json``; with ``forks`` it needs no interpreters."""
    target = folder / "verdict.json"
    began = time.monotonic()
    return finish(begin(folder, "--json", target, *arguments, env=env, forks=forks), target, began)
