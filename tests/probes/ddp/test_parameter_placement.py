"""Where parameters lie: shared memory has one name for all processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import ddpcheck
from ddpcheck.evidence import Placed
from ddpcheck.probes.ddp import parameter_placement
from ddpcheck.probes.recording import recorder

MEMORY = """
    import os, torch
    from ddpcheck.probes.ddp.parameter_placement import _memory

    net = torch.nn.Linear(4, 4).share_memory()
    other = torch.nn.Linear(4, 4).share_memory()
    mine = _memory(dict(net.named_parameters()))
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, repr(_memory(dict(net.named_parameters()))).encode())
        os._exit(0)
    assert os.read(read, 10000).decode() == repr(mine), "the child has the same memory"
    assert set(mine) == {"weight", "bias"}
    assert not set(mine.values()) & set(_memory(dict(other.named_parameters())).values())
"""


def test_a_simulated_device_has_a_name():
    """All ranks see the same simulated devices: two on one of them are found."""
    with ddpcheck.simulated_devices(2):
        assert parameter_placement._hardware("cuda:1") == "simulated cuda:1"


def test_a_gpu_is_named_by_what_names_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="a"))
    assert parameter_placement._hardware("cuda:1") == "GPU-a"


def test_memory_has_one_name_for_all_processes():
    """Two processes that share a parameter know its memory by the same name, and no other's."""
    root = Path(__file__).parents[3]
    code = textwrap.dedent(MEMORY)
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(("told", "sharing"), [("1", True), ("0", False), ("", False), (None, False)])
def test_whether_gpus_are_shared_on_purpose(monkeypatch, told, sharing):
    """The environment says so where the wrapper is made."""
    writer = recorder.InMemory()
    monkeypatch.setattr(recorder, "_recorder", writer)
    if told is None:
        monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    else:
        monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", told)

    with ddpcheck.simulated_devices(1):
        wrapper = torch.nn.Sequential()
        wrapper.module = torch.nn.Linear(2, 2).to("cuda:0")
        wrappers = SimpleNamespace(all={wrapper: SimpleNamespace(number=0)})
        monkeypatch.setattr(parameter_placement, "WRAPPERS", wrappers)
        parameter_placement._around_init(lambda self: None)(wrapper)
    (found,) = [one for one in writer.kept if isinstance(one, Placed)]
    assert (found.sharing, found.hardware) == (sharing, {"cuda:0": "simulated cuda:0"})
