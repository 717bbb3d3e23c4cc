"""A training that deepspeed's launcher starts; with --fault, every rank reads the shard of rank 0."""

import argparse

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
parser.add_argument("--fault", action="store_true")
parser.add_argument("--engine", action="store_true")
options = deepspeed.add_config_arguments(parser).parse_args()

deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
dataset = TensorDataset(torch.arange(128.0).reshape(32, 4) / 128)
sampler = DistributedSampler(dataset, dist.get_world_size(), 0 if options.fault else dist.get_rank())
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if options.engine:
    config = {"train_micro_batch_size_per_gpu": 4}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
else:
    wrapped = DistributedDataParallel(model)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        if options.engine:
            engine.backward(engine(x).mean())
            engine.step()
        else:
            optimizer.zero_grad()
            wrapped(x).mean().backward()
            optimizer.step()
dist.destroy_process_group()
