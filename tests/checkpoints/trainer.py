"""A training with everything that a resume has to bring back, its save and load, and ways to get them wrong."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BATCH = 4


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 1))


class Trainer:
    """Trains on a shuffled dataset, epoch after epoch, with augmentation, dropout, a schedule and a scaler."""

    def __init__(self, wrap: Callable[[nn.Module], nn.Module]) -> None:
        self.model = wrap(net())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
        inputs = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
        self.dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
        self.sampler = DistributedSampler(self.dataset)
        self.epoch = self.done = 0
        """The epoch, and how many batches of it are done."""
        self.batches: Iterator[Any] | None = None

    def step(self) -> None:
        inputs, targets = self.next_batch()
        inputs = inputs + 0.01 * random.random()
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()

    def next_batch(self) -> Any:
        if self.batches is None:
            self.sampler.set_epoch(self.epoch)
            self.batches = iter(DataLoader(self.dataset, batch_size=BATCH, sampler=self.sampler))
            for _ in range(self.done):
                next(self.batches)
        batch = next(self.batches, None)
        if batch is None:
            self.epoch, self.done, self.batches = self.epoch + 1, 0, None
            return self.next_batch()
        self.done += 1
        return batch


def inner(model: nn.Module) -> nn.Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def streams() -> Any:
    """This rank's random states."""
    return torch.get_rng_state(), random.getstate()


def state_of(trainer: Trainer) -> dict[str, Any]:
    """What a checkpoint of it has, each rank's random states in it; all ranks take part."""
    all_streams: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_streams, streams())
    return {
        "model": inner(trainer.model).state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer.scheduler.state_dict(),
        "scaler": trainer.scaler.state_dict(),
        "epoch": trainer.epoch,
        "done": trainer.done,
        "streams": all_streams,
    }


def save(trainer: Trainer, path: Path) -> None:
    """Rank 0 writes beside the checkpoint, and moves it into place; all wait for that."""
    state = state_of(trainer)
    if dist.get_rank() == 0:
        draft = path.with_suffix(".draft")
        torch.save(state, draft)
        os.replace(draft, path)
    dist.barrier()


def load(trainer: Trainer, path: Path, leave_out: str = "") -> None:
    """Every rank reads all of it, its own random states last."""
    state = torch.load(path, map_location="cpu", weights_only=False)
    put_back(trainer, state, leave_out)


def put_back(trainer: Trainer, state: dict[str, Any], leave_out: str = "", streams_of: int | None = None) -> None:
    if leave_out != "model":
        inner(trainer.model).load_state_dict(state["model"])
    if leave_out != "optimizer":
        trainer.optimizer.load_state_dict(state["optimizer"])
    if leave_out != "scheduler":
        trainer.scheduler.load_state_dict(state["scheduler"])
    if leave_out != "scaler":
        trainer.scaler.load_state_dict(state["scaler"])
    if leave_out != "epoch":
        trainer.epoch = state["epoch"]
    if leave_out != "place":
        trainer.done = state["done"]
    trainer.sampler.set_epoch(trainer.epoch)
    trainer.batches = None
    if trainer.done:  # the rest of this epoch, its shuffling included, before the streams are put back
        trainer.batches = iter(DataLoader(trainer.dataset, batch_size=BATCH, sampler=trainer.sampler))
        for _ in range(trainer.done):
            next(trainer.batches)
    if leave_out != "streams":
        torch_state, python_state = state["streams"][dist.get_rank() if streams_of is None else streams_of]
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
