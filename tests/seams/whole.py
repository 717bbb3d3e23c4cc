"""A right training that does a little of everything, and says what it has come to."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(12))
    dataset = TensorDataset(x, x.flip(1))
    sampler: DistributedSampler[int] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    torch.random.manual_seed(3 + rank)
    net = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.Linear(16, 8), nn.Linear(8, 8), nn.Linear(8, 8)
    )
    net[5].weight = net[4].weight
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    group = dist.new_group([0, 1])
    average = copy.deepcopy(net).requires_grad_(False)
    path = Path(os.environ["SCRATCH"]) / "last.pt"
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (batch, target) in enumerate(loader):
            if number % 2:
                scaler.scale(nn.functional.mse_loss(model(batch), target)).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                with torch.no_grad():
                    average(batch)
                    average.load_state_dict(net.state_dict())
            else:
                with model.no_sync():
                    scaler.scale(nn.functional.mse_loss(model(batch), target)).backward()
        scheduler.step()
        total = torch.ones(1)
        dist.all_reduce(total, group=group, async_op=True).wait()
        if rank == 0:
            draft = path.with_suffix(".draft")
            torch.save({"net": model.module.state_dict()}, draft)
            os.replace(draft, path)
    dist.barrier()
    net.load_state_dict(torch.load(path, map_location="cpu")["net"])
    model.eval()
    with torch.no_grad():
        print(f"result {sum(float(p.double().sum()) for p in model.parameters()):.9f} {float(total)}", flush=True)
        model.module(x)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
