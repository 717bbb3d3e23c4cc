"""Programs that torch.compile compiles, in one rank, with probes or without; says what the compiler has counted."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._dynamo import convert_frame
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.probes import all_probes
from ddpcheck.probes.recording import recorder

COUNTER = CompileCounter()
X = torch.randn(8, 4)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


def compiled(function: Any, **how: Any) -> Any:
    return torch.compile(function, backend=COUNTER, **how)


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model: Any) -> None:
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()


def module_inside() -> None:
    train(DistributedDataParallel(compiled(Net())))


def wrapper_from_outside() -> None:
    train(compiled(DistributedDataParallel(Net())))


def train_step() -> None:
    model = DistributedDataParallel(Net())
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with model.no_sync():
            model(x).sum().backward()
        loss = model(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return loss

    step = compiled(step)
    for _ in range(3):
        step(X)


def optimizer_step() -> None:
    model = DistributedDataParallel(Net())
    optimizer = sgd(model)

    def step() -> None:
        optimizer.step()
        torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)  # one that the compiler has to make

    step = compiled(step)
    for _ in range(3):
        optimizer.zero_grad()
        model(X).square().mean().backward()
        step()


def functional_collectives() -> None:
    def exchange(x: torch.Tensor) -> Any:
        return functional.all_gather_tensor(functional.all_reduce(x * 2, "sum", dist.group.WORLD), 0, dist.group.WORLD)

    exchange = compiled(exchange, fullgraph=True)
    for _ in range(3):
        exchange(X)


def whole_forward() -> None:
    model = DistributedDataParallel(Net())
    forward = compiled(lambda x: model.module(x), fullgraph=True)
    for _ in range(3):
        forward(X).sum().backward()


def files_and_works() -> None:
    net = Net()

    def save(x: torch.Tensor) -> torch.Tensor:
        y = x + torch.rand(4)
        torch.manual_seed(3)
        dist.all_reduce(y, async_op=True).wait()
        torch.save(net.state_dict(), "net.pt")
        if os.path.exists("net.pt"):
            net.load_state_dict(torch.load("net.pt"))
        for batch in torch.utils.data.DataLoader(y, 4):
            y = y + net(batch).sum()
        return y + 2

    save = compiled(save)
    for _ in range(3):
        save(X)


PROGRAMS = [
    module_inside,
    wrapper_from_outside,
    train_step,
    optimizer_step,
    functional_collectives,
    whole_forward,
    files_and_works,
]


def main(watched: bool) -> None:
    if watched:
        all_probes.start(Path.cwd(), 1 << 28)
    frames: list[str] = []
    convert = convert_frame.ConvertFrame.__call__

    def seen(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        frames.append(f"{frame.f_code.co_filename}: {frame.f_code.co_name}")
        return convert(self, frame, *args, **kwargs)

    convert_frame.ConvertFrame.__call__ = seen  # type: ignore[method-assign]
    found = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        for program in PROGRAMS:
            torch._dynamo.reset()
            counters.clear()
            COUNTER.clear()
            frames.clear()
            writer = recorder.current() if watched else None
            records = writer.next()["n"] if writer is not None else 0
            program()
            found[program.__name__] = {
                "graphs": COUNTER.frame_count,
                "operators": COUNTER.op_count,
                "breaks": sum(counters["graph_break"].values()),
                "records": writer.next()["n"] - records if writer is not None else 0,
                "frames of ours": [frame for frame in frames if f"{os.sep}ddpcheck{os.sep}" in frame],
            }
        dist.destroy_process_group()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:] == ["watched"])
