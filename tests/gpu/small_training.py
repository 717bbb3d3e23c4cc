"""A small training in ranks, which says how long its steps take: `slow_down` runs it with and without ddpcheck.

    small_training.py OUT STEPS REPEATS [--channels-last] [--batch SAMPLES] [--width WIDTH] [--one-by-one]

``REPEATS`` is how often a step goes through its middle layers; 0 finds the number with which a step takes
`STEP` seconds here, so that it costs what a small net costs, whatever the GPU. With ``--one-by-one`` the optimizer
takes one parameter after the other, and needs no memory for all of them at once.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

STEP = 0.012
WIDTH = 144
"""Of a layer, a multiple of nine."""
MOST = 16
"""Repeats: where kernels take no time at all, no number of them would do."""


class Layer(nn.Module):
    """A linear layer whose weight has four dimensions, as a convolution's has: no cuDNN chooses how it is computed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width // 9, 3, 3) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.flatten(1), self.bias)


class Net(nn.Module):
    """Such layers, gone through again and again: fifty tensors, half a million elements, and many small kernels."""

    def __init__(self, repeats: int, width: int) -> None:
        super().__init__()
        self.repeats = repeats
        self.layers = nn.ModuleList(Layer(width) for _ in range(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.repeats):
            for layer in self.layers:
                x = x + layer(x).relu() * 0.01
        return x


class Training:
    """The net in its wrapper, with its optimizer."""

    def __init__(
        self, device: torch.device, repeats: int, channels_last: bool, samples: int, width: int, at_once: bool = True
    ) -> None:
        torch.manual_seed(0)
        net: Any = Net(repeats, width).to(device)
        self.net = net.to(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
        self.model = nn.parallel.DistributedDataParallel(self.net, device_ids=[device.index])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, foreach=None if at_once else False)
        self.inputs = torch.randn(samples, width, device=device)

    def steps(self, number: int) -> float:
        """Take so many steps; the seconds until the device was done with them."""
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(number):
            self.optimizer.zero_grad()
            self.model(self.inputs).square().mean().backward()
            self.optimizer.step()
        torch.cuda.synchronize()
        return time.perf_counter() - begun


def repeats_here(device: torch.device, samples: int) -> int:
    """With how many repeats a step takes long enough: measured alone, and agreed on by all ranks."""
    from_one = Training(device, 1, False, samples, WIDTH)
    from_one.steps(5)
    found = torch.tensor([from_one.steps(10) / 10], device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    seconds = float(found.item())
    return max(1, min(MOST, round(STEP / seconds))) if seconds > 0 else 1


def main() -> None:
    """Train, and leave the figures of rank 0 in a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("steps", type=int)
    parser.add_argument("repeats", type=int)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--one-by-one", action="store_true")
    given = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group(os.environ["BACKEND"], timeout=timedelta(seconds=120))
    repeats = given.repeats or repeats_here(device, given.batch)
    training = Training(device, repeats, given.channels_last, given.batch, given.width, not given.one_by_one)
    torch.cuda.reset_peak_memory_stats()
    # No warm-up: what a run pays at its beginning, short ones pay in full.
    seconds = training.steps(given.steps) if given.steps else 0.0
    if dist.get_rank() == 0:
        with open(given.out, "w") as file:
            json.dump(
                {
                    "steps": given.steps,
                    "repeats": repeats,
                    "seconds": seconds,
                    "peak_memory": torch.cuda.max_memory_allocated(),
                    "parameters": sum(p.numel() for p in training.net.parameters()),
                },
                file,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
