"""Launchers that `nox -s launchers` installs, and those of the system: the fault is found, the right twin is held."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.command import running
from tests.command.running import Ran
from tests.launchers.launching import FAULTS, PROGRAMS, environment, free_port, holds, launched, needs

pytestmark = [pytest.mark.long, pytest.mark.parametrize("fault", FAULTS)]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Some compile, or start a cluster first."""
    monkeypatch.setattr(running, "PATIENCE", 600.0)


NO_QUESTIONS = ("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")


@needs("accelerate")
def test_accelerate_launch(tmp_path, fault):
    """A loader that was not prepared; it starts torchrun in its own process."""
    script = str(PROGRAMS / "with_accelerate.py")
    port = ("--main_process_port", free_port())
    ran = launched(
        tmp_path,
        "accelerate",
        "launch",
        "--multi_gpu",
        "--num_processes",
        "2",
        *NO_QUESTIONS,
        *port,
        script,
        fault=fault,
    )
    holds(ran, fault, "shard-partition", "with_accelerate.py")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder for what deepspeed compiles at its first use."""
    return str(tmp_path_factory.mktemp("compiled"))


@needs("deepspeed")
def test_deepspeed(tmp_path, compiled, fault):
    """A sampler that was given the wrong rank; the launcher starts another one, which starts the ranks."""
    script = str(PROGRAMS / "with_deepspeed.py")
    ran = launched(
        tmp_path,
        *("deepspeed", "--master_port", free_port(), "--num_accelerators", "2", script),
        fault=fault,
        DS_ACCELERATOR="cpu",
        TORCH_EXTENSIONS_DIR=compiled,
    )
    holds(ran, fault, "shard-partition", "with_deepspeed.py")


@needs("ray")
def test_ray_train(tmp_path, fault):
    """A loader that was not prepared; the ranks are workers of a cluster that the script starts."""
    ran = launched(tmp_path, "python", str(PROGRAMS / "with_ray.py"), fault=fault, RAY_TRAIN_V2_ENABLED="1")
    holds(ran, fault, "shard-partition", "with_ray.py")


@needs("accelerate", "nbformat", "nbconvert", "ipykernel")
def test_a_notebook(tmp_path, fault):
    """A loader that was not prepared, in a cell; the ranks are forks of the kernel."""
    subprocess.run([sys.executable, PROGRAMS / "notebook.py", "train.ipynb", fault], cwd=tmp_path, check=True)
    ran = launched(tmp_path, "jupyter", "nbconvert", "--to", "notebook", "--execute", "train.ipynb", fault="")
    where = ran.document["findings"][0]["where"]["file"].rpartition("/")[2] if fault else ""
    holds(ran, fault, "shard-partition", where)


MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")


@needs("mpirun")
def test_mpirun_is_followed(tmp_path, fault):
    """On one host it starts the ranks itself, with the environment that it has."""
    train = ("python", str(PROGRAMS / "train.py"))
    ran = launched(tmp_path, *MPIRUN, *train, fault=fault, MASTER_ADDR="localhost", MASTER_PORT=free_port())
    holds(ran, fault, "gradient-sync", "train.py")


@needs("mpirun")
def test_mpirun_starts_tasks(tmp_path, fault):
    """Each of them with a ddpcheck of its own; one report."""
    train = ("python", str(PROGRAMS / "train.py"), *([fault] if fault else []))
    ours = (sys.executable, "-m", "ddpcheck.cli", "run", "--task", "--json", "verdict.json")
    env = {**os.environ, **environment(MASTER_ADDR="localhost", MASTER_PORT=free_port())}
    ran = subprocess.run([*MPIRUN, *ours, *train], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    document = json.loads((tmp_path / "verdict.json").read_text())
    holds(Ran(ran.returncode, ran.stdout, ran.stderr, 0.0, document), fault, "gradient-sync", "train.py")
    assert sum(ran.stderr.count(f"\n{verdict} ") for verdict in ("HELD", "VIOLATED")) == 1, ran.stderr
    assert "the task of rank 0 shows the report" in ran.stderr
