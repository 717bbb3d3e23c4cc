"""Claim 24 (S2): the number of GPUs must cover the launched processes.

Told before any rank starts: by a test's mark, and by the command where it is
asked for a rank per GPU. What a script does with its GPUs is the script's own:
the guide's program takes the CPU where there are too few.
"""

from __future__ import annotations

import pytest
import torch

from ddpcheck.run import torchrun_numbers
from ddpcheck.run.options import WrongUsage, parse
from fixtures import s2_breast_cancer as s2

TESTS = """
import pathlib, pytest

@pytest.mark.ddp(world_size=16, backend="nccl", device="cuda")
def test_on_gpus(ddp):
    pathlib.Path("started").touch()

@pytest.mark.ddp(world_size=2)
def test_on_cpus(ddp):
    pathlib.Path("on the CPU").touch()
"""


@pytest.mark.long
def test_a_test_with_more_ranks_than_gpus_starts_none(project):
    """Where GPUs are required it fails, with both numbers (elsewhere it is skipped); a test on the CPU runs."""
    project.write("test_it.py", TESTS)

    ran = project.run("--ddp-require-gpus", "16", CUDA_VISIBLE_DEVICES="")

    assert ran["test_on_gpus"].outcome == "error"
    assert "16" in ran["test_on_gpus"].text
    assert "torch sees no GPU" in ran["test_on_gpus"].text
    assert not (project.folder / "started").exists()
    assert ran["test_on_cpus"].outcome == "passed"
    assert (project.folder / "on the CPU").exists()


def test_the_command_is_asked_for_a_rank_per_gpu_where_there_is_none(tmp_path, monkeypatch):
    """``--nproc-per-node gpu`` without a GPU is one sentence, and nothing is started."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "train.py").touch()

    with pytest.raises(WrongUsage) as told:
        parse(["--nproc-per-node", "gpu", str(tmp_path / "train.py")])

    assert str(told.value) == "--nproc-per-node gpu does not work here: Cuda is not available"


def test_the_command_is_asked_for_a_rank_per_gpu_where_there_are_some(tmp_path, monkeypatch):
    """The twin: with GPUs the same option is followed."""
    monkeypatch.setattr(torchrun_numbers, "_may_have_cuda", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    (tmp_path / "train.py").touch()

    assert parse(["--nproc-per-node", "gpu", str(tmp_path / "train.py")]).launched


@pytest.mark.parametrize(("gpus", "kind"), [(0, "cpu"), (1, "cpu"), (2, "cuda"), (8, "cuda")])
def test_the_guides_program_takes_the_cpu_where_gpus_do_not_cover_it(gpus, kind, monkeypatch):
    """Two processes take a GPU each where there are two or more, and otherwise none takes one."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    assert [s2.device_of(local, 2).type for local in range(2)] == [kind, kind]
    if kind == "cuda":
        assert [s2.device_of(local, 2).index for local in range(2)] == [0, 1]
