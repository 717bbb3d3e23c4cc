"""A training script of a given size, which prints what processor time its steps took, with probes on and off.

torchrun or ddpcheck runs it, with copies of the model or with parts of it. Probes are on and off in blocks of steps by
turns, first on, so that the looks at the first steps are counted. The wrappers around torch's functions stay in place
and pass each call on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WARM_UP = 10
"""Steps before the first block, with probes off: the first steps of a process take longer, with or without us."""
BLOCK = 50
"""Steps with probes on, and then as many with probes off."""


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
    raise ValueError(f"no model {name}")


MODELS = ("mlp-1M", "convolutions-2M", "transformer-10M")
"""Of 20 ms a step and more, on two cores."""


def copies(module: nn.Module) -> nn.Module:
    return DistributedDataParallel(module)


def parts(module: nn.Module, **how: Any) -> nn.Module:
    """FSDP2, each layer by itself, as its documentation has it."""
    from torch.distributed.fsdp import fully_shard

    for layer in module.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer, **how)
    return fully_shard(module, **how)


def copies_of_parts(module: nn.Module) -> nn.Module:
    """The same within each half of the ranks."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("copies", "parts"))
    return parts(module, mesh=mesh)


WAYS = {"ddp": copies, "fsdp2": parts, "hsdp": copies_of_parts}
RANKS = {"ddp": 2, "fsdp2": 2, "hsdp": 4}


class Probes:
    """The probes of this process, if it is watched."""

    def __init__(self) -> None:
        modules = [module for name, module in list(sys.modules.items()) if name.startswith("ddpcheck.probes.")]
        self._sleeping = [(module, vars(module)["asleep"]) for module in modules if "asleep" in vars(module)]
        self._recorder = sys.modules.get("ddpcheck.probes.recording.recorder")

    def turn(self, on: bool) -> None:
        """Turn them on or off."""
        if self._recorder is not None:
            self._recorder.mute(not on)
        for module, asks in self._sleeping:
            vars(module)["asleep"] = asks if on else _always


def _always() -> bool:
    return True


class Blocks:
    """The processor time of this process in blocks of either kind."""

    def __init__(self, probes: Probes) -> None:
        self._probes, self._steps, self._on, self._began = probes, -WARM_UP, False, 0.0
        self.spent = {True: 0.0, False: 0.0}
        probes.turn(False)

    def step(self) -> int:
        """Count a step; the number of steps since the warm-up."""
        self._steps += 1
        if self._steps >= 0 and self._steps % BLOCK == 0:
            if self._steps:
                self.spent[self._on] += time.process_time() - self._began
            self._on = not self._on
            self._probes.turn(self._on)
            self._began = time.process_time()
        return self._steps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--way", choices=WAYS, default="ddp")
    parser.add_argument("--steps", type=int, default=2000, help=f"a multiple of {2 * BLOCK}")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)  # FSDP2 takes each rank's part as that rank has drawn it
    module, samples, batch_size = model_of(options.model)
    model = WAYS[options.way](module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    dataset = TensorDataset(samples)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)
    blocks, epoch, steps = Blocks(probes := Probes()), 0, 0
    while steps < options.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for (x,) in loader:
            loss = (model(x).flatten(1) - x.flatten(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (steps := blocks.step()) == options.steps:
                break
    probes.turn(True)
    each: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(each, blocks.spent)
    if dist.get_rank() == 0:
        on, off = (sum(one[which] for one in each) for which in (True, False))
        per_step = 2e3 / options.steps / len(each)
        print("BLOCKS " + json.dumps({"ratio": on / off, "on": on * per_step, "off": off * per_step}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
