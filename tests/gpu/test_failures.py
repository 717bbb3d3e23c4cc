"""Failures that only a GPU has, in sessions of their own: whose they are, and what became of the other ranks.

Needs one GPU. With NCCL 2.30 or newer, or two GPUs, the ranks wait for each
other in NCCL, otherwise in gloo. Errors of kernels and of memory need a real one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.gpu.sharing import backend_for
from tests.inner import InnerProject

HEAD = """
import pytest, torch
import torch.distributed as dist

def meet(ddp):
    total = torch.ones(1, device=ddp.device)
    dist.all_reduce(total)
    torch.cuda.synchronize()
"""


def run(project: InnerProject, body: str, simulated: bool, timeout: int = 90) -> str:
    """Run a test of two ranks on the GPUs of this one; returns what was told of its failure."""
    backend = backend_for(2, simulated)
    mark = f"@pytest.mark.ddp(world_size=2, backend={backend!r}, device='cuda', timeout={timeout})"
    project.write("test_it.py", f"{HEAD}\n{mark}\ndef test_it(ddp):\n    meet(ddp)\n{body}    meet(ddp)\n")
    ran = project.run(*(["--ddp-simulate-gpus", "2"] if simulated else []), CUDA_LAUNCH_BLOCKING="0")
    assert ran["test_it"].outcome == "failed", ran.stdout
    assert project.leftover_processes() == []
    return ran["test_it"].text


@pytest.mark.gpu
def test_an_error_on_one_rank(project: InnerProject, simulated: bool) -> None:
    """A Python error on rank 1 is its failure; rank 0, which waits in a collective, is a consequence."""
    told = run(project, "    assert ddp.rank == 0, 'the cause'\n", simulated)
    assert "rank 1 failed first" in told
    assert "the cause" in told
    assert "rank 0" in told.split("the other ranks")[1]


@pytest.mark.gpu(real="the error of a kernel, which is told later")
def test_an_asynchronous_error_on_one_rank(project: InnerProject, simulated: bool) -> None:
    """An index out of bounds ends the kernel, and is told at the next synchronisation, as that rank's failure."""
    body = """
    if ddp.rank == 1:
        table = torch.zeros(4, device=ddp.device)
        table[torch.tensor([10], device=ddp.device)]
        torch.cuda.synchronize()
"""
    told = run(project, body, simulated)
    assert "rank 1 failed first" in told or "rank 1 died" in told
    assert "device-side assert" in told
    assert "rank 0" in told


@pytest.mark.gpu(real="the memory of a GPU")
def test_one_rank_out_of_memory(project: InnerProject, simulated: bool) -> None:
    """Who asks for more than there is fails by name; the other rank is a consequence."""
    body = """
    if ddp.rank == 1:
        torch.empty(1 << 50, dtype=torch.uint8, device=ddp.device)
"""
    told = run(project, body, simulated)
    assert "rank 1 failed first" in told
    assert "OutOfMemoryError" in told
    assert "rank 0" in told.split("the other ranks")[1]


@pytest.mark.gpu
def test_a_rank_that_is_killed(project: InnerProject, simulated: bool) -> None:
    """A death by a signal while the other rank waits in a collective is told with the signal's name."""
    told = run(
        project, "    import os, signal\n    if ddp.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n", simulated
    )
    assert "rank 1" in told.splitlines()[0]
    assert "SIGKILL" in told


@pytest.mark.gpu
def test_a_hang_in_a_collective(project: InnerProject, simulated: bool) -> None:
    """A collective that one rank does not issue ends at the deadline, with the line where each rank was."""
    body = """
    if ddp.rank == 1:
        import time
        time.sleep(600)  # the rank that is late
"""
    told = run(project, body, simulated, timeout=20)
    assert "timed out" in told
    assert "in test_it" in told


@pytest.mark.gpu(real="the driver, which says what it sees")
def test_the_gpu_is_free_again(tmp_path: Path) -> None:
    """After all that, memory can be had, and a kernel runs."""
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    assert float(torch.ones(1024, 1024, device="cuda").sum()) == 1024 * 1024
