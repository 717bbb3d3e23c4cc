"""The work that all harnesses are measured with: in an initialised group, one step of a DDP model, then compare.

The inner sessions and the peers' runner import copies of this file.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

MEMORY = "BENCH_MEMORY"
"""Names the folder into which each rank writes how much memory is its own."""


def trained() -> torch.nn.Module:
    """A small model after one forward, backward and optimizer step."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.full((16, 32), float(dist.get_rank()))).square().mean().backward()
    optimizer.step()
    return model


def step_and_compare() -> None:
    """One step, and the parameters of all ranks compared by a collective."""
    model = trained()
    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, mine)
    assert all(torch.equal(mine, other) for other in everyones)
    if MEMORY in os.environ:
        Path(os.environ[MEMORY], f"{os.getpid()}").write_text(str(private_dirty()))


def private_dirty() -> int:
    """The bytes of memory that this process has written to and shares with no other."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no Private_Dirty")
