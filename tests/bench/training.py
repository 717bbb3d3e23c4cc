"""A training script of a given size, which prints how long each of its steps took, and what its CPU seconds were.

It is run by torchrun, and by ddpcheck; with copies of the model, or with parts of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WARM_UP = 8
"""Steps that are not counted: the first of them are dearer for everyone."""


class Block(nn.Module):
    """A transformer's layer, in plain parts: many tensors, none of them large."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mix(self.second(x))


def model_of(name: str) -> tuple[nn.Module, torch.Tensor, int]:
    """A model, samples for it, and the batch size of each rank."""
    generator = torch.Generator().manual_seed(0)
    if name == "mlp-1M":
        return (
            nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)),
            torch.randn(4096, 512, generator=generator),
            256,
        )
    if name == "convolutions-2M":
        layers: list[nn.Module] = []
        widths = [3, 64, 64, 128, 128, 256, 256]
        for place, (a, b) in enumerate(itertools.pairwise(widths)):
            layers += [nn.Conv2d(a, b, 3, stride=1 + place % 2, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 3 * 32 * 32)]
        return nn.Sequential(*layers), torch.randn(512, 3, 32, 32, generator=generator), 8
    if name == "transformer-10M":
        return nn.Sequential(*[Block(256) for _ in range(12)]), torch.randn(256, 32, 256, generator=generator), 4
    if name == "mlp-100M":
        return (
            nn.Sequential(nn.Linear(5000, 10000), nn.ReLU(), nn.Linear(10000, 5000)),
            torch.randn(256, 5000, generator=generator),
            4,
        )
    raise ValueError(f"no model {name}")


MODELS = ("mlp-1M", "convolutions-2M", "transformer-10M", "mlp-100M")


def copies(module: nn.Module) -> nn.Module:
    return DistributedDataParallel(module)


def parts(module: nn.Module) -> nn.Module:
    """FSDP2, each layer by itself, as its documentation has it."""
    from torch.distributed.fsdp import fully_shard

    for layer in module.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer)
    return fully_shard(module)


WAYS = {"ddp": copies, "fsdp2": parts}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--way", choices=WAYS, default="ddp")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)  # FSDP2 takes each rank's part as that rank has drawn it
    module, samples, batch_size = model_of(options.model)
    model = WAYS[options.way](module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    dataset = TensorDataset(samples)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)
    seconds: list[float] = []
    used: list[tuple[float, float]] = []
    epoch = 0
    while len(seconds) < options.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        began = time.perf_counter()
        for (x,) in loader:
            loss = (model(x).flatten(1) - x.flatten(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            now = time.perf_counter()
            seconds.append(now - began)
            used.append((time.thread_time(), time.process_time()))
            began = now
            if len(seconds) == options.steps:
                break
    if dist.get_rank() == 0:
        print("STEPS " + json.dumps(seconds[WARM_UP:]), flush=True)
        counted = len(used) - WARM_UP
        thread, process = ((last - first) / counted for first, last in zip(used[WARM_UP - 1], used[-1], strict=True))
        print("CPU " + json.dumps({"thread": thread, "process": process}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
