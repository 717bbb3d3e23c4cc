"""Where parameters lie: shared memory has one name for all processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import torch

import ddpcheck
from ddpcheck.probes.ddp import parameter_placement

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
