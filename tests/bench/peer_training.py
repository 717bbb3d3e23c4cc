"""One training of the conformance suite's plain loop under torchrun: what each of its trainings would cost there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from ddpcheck.conformance import models
from ddpcheck.conformance.datasets import Samples
from ddpcheck.conformance.job import optimizer_of
from ddpcheck.conformance.losses import Loss
from ddpcheck.trainings.situations import BY_NAME
from fixtures.trainers.plain import Trainer

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
situation = BY_NAME["plain"]
model = models.make(situation, seed=rank)
job = SimpleNamespace(
    model=model,
    dataset=Samples(situation, situation.size.at(world_size)),
    sampler=None,
    validation=None,
    loss=Loss(situation.loss),
    loss_kind=situation.loss,
    optimizer=optimizer_of(situation, model.parameters()),
    scheduler=None,
    rank=rank,
    world_size=world_size,
    local_rank=int(os.environ["LOCAL_RANK"]),
    device=torch.device("cpu"),
    batch_size=situation.batch_size,
    epochs=situation.epochs,
    accumulation=situation.accumulation,
    clip_norm=None,
    shuffle=True,
    drop_last=False,
    workers=0,
    precision=situation.precision,
    unused_parameters=False,
    seed=7,
    save_every=None,
    resume=False,
    checkpoint_folder=Path(tempfile.gettempdir()),
)
Trainer(job).run()
dist.destroy_process_group()
