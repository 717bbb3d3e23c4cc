"""What names a GPU itself, whatever number a process sees it under, and a process that ranks come from which dies.

Needs one GPU; with two, it is seen that they have two names.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ddpcheck.probes import tensor_devices
from tests.gpu import scripts
from tests.gpu.sharing import backend_for
from tests.inner import InnerProject

ASK = """
import json, sys
from ddpcheck.gpus.gpu_inventory import look
print(json.dumps([gpu.key for gpu in look().gpus]))
"""


def names(folder: Path, visible: str, **environment: str) -> list[str]:
    """What an interpreter that sees these GPUs says that they are."""
    outer = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    ended = scripts.run([sys.executable, "-c", ASK], folder, 120, outer)
    assert ended.code == 0, ended.output
    # A warning of torch begins with a bracket, too.
    found: list[str] = next(json.loads(line) for line in ended.output.splitlines() if line.startswith('["'))
    return found


@pytest.mark.gpu(real="what names a GPU itself")
def test_a_gpu_has_one_name(tmp_path: Path) -> None:
    """By number, by its name itself, and in the order of the bus: always the same one."""
    first = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0]
    (name,) = names(tmp_path, first)
    assert name.startswith(("GPU-", "MIG-")), name
    assert names(tmp_path, name) == [name]
    assert names(tmp_path, name, CUDA_DEVICE_ORDER="PCI_BUS_ID") == [name]
    assert names(tmp_path, first) == [name]


@pytest.mark.gpu(2, real="what names a GPU itself")
def test_two_gpus_have_two_names(tmp_path: Path) -> None:
    """And turned around, each keeps its own."""
    first, second = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[:2]
    found = names(tmp_path, f"{first},{second}")
    assert len(set(found)) == 2
    assert names(tmp_path, f"{second},{first}") == found[::-1]


def hardware(ddp: Any) -> list[str]:
    """What each rank says that its device is."""
    module = torch.nn.Linear(1, 1).to(ddp.device)
    facts = tensor_devices.facts(module, given=ddp.device, local_rank=ddp.rank, batch={})
    every: list[Any] = [None] * ddp.world_size
    dist.all_gather_object(every, facts.hardware.get(str(ddp.device)))
    return every


@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=180)
@pytest.mark.gpu(1, real="what names a GPU itself")
def test_ranks_that_share_a_gpu_say_so(ddp: Any) -> None:
    """Both give the same name."""
    first, second = hardware(ddp)
    assert first
    assert first == second


@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=180)
@pytest.mark.gpu(2, real="what names a GPU itself")
def test_ranks_on_gpus_of_their_own_say_so(ddp: Any) -> None:
    """Each gives another name, and knows it."""
    first, second = hardware(ddp)
    assert first
    assert second
    assert first != second


# --- the process that ranks are forked from

CONFTEST = """
import os, signal
import psutil

def pytest_runtest_logfinish(nodeid, location):
    if "test_before" in nodeid and "RANK" not in os.environ:
        for child in psutil.Process().children(recursive=True):
            if {which!r} in " ".join(child.cmdline()):
                print("killed", child.pid, flush=True)
                child.send_signal(signal.SIGKILL)
"""

TESTS = """
import pytest, torch
import torch.distributed as dist

pytestmark = pytest.mark.ddp(world_size=2, backend={backend!r}, device="cuda", timeout=120)

def meet(ddp):
    total = torch.ones(1, device=ddp.device)
    dist.all_reduce(total)
    torch.cuda.synchronize()

def test_before(ddp): meet(ddp)
def test_next(ddp): meet(ddp)
def test_last(ddp): meet(ddp)
"""


@pytest.mark.gpu
def test_a_dead_zygote(project: InnerProject, simulated: bool) -> None:
    """Killed between two tests with all that belongs to it, it is replaced: the tests after it run on the GPU."""
    project.write("conftest.py", CONFTEST.format(which="ddpcheck"))
    project.write("test_it.py", TESTS.format(backend=backend_for(2, simulated)))
    ran = project.run("-s", *(["--ddp-simulate-gpus", "2"] if simulated else []))
    assert "killed" in ran.stdout, ran.stdout
    assert {name: one.outcome for name, one in ran.tests.items()} == dict.fromkeys(
        ("test_before", "test_next", "test_last"), "passed"
    ), ran.stdout
    assert project.leftover_processes() == []
