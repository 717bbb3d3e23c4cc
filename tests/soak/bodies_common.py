"""What the bodies of the soak run's tests share.

Rank ``number % 2`` is the one that causes trouble.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

import ddpcheck


def culprit(ddp: Any, number: int) -> bool:
    return bool(ddp.rank == number % 2)


def meet() -> None:
    """A collective: without the other rank it waits for ever."""
    dist.all_reduce(torch.ones(4))


def model_of(number: int) -> torch.nn.Module:
    torch.manual_seed(number)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def train(ddp: Any, number: int, asserted: bool = False) -> torch.nn.Module:
    """One to three steps of data parallel training; returns the wrapped model."""
    model: torch.nn.Module = ddp.wrap(model_of(number))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1 + number % 3):
        optimizer.zero_grad()
        model(torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + ddp.rank))).sum().backward()
        if asserted:
            ddpcheck.assert_gradients_identical(model)
        optimizer.step()
    return model


def daemonise() -> None:
    """Leave a process behind that has gone out of every tree and session."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "300"])
        os._exit(0)
    os.wait()
