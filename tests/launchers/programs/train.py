"""A training with torch alone; with --fault, one rank clips its gradients."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if "OMPI_COMM_WORLD_RANK" in os.environ:  # as Open MPI has it
    os.environ["RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
    os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
elif "SLURM_PROCID" in os.environ:
    os.environ["RANK"] = os.environ["SLURM_PROCID"]
    os.environ["WORLD_SIZE"] = os.environ["SLURM_NTASKS"]
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    if dist.get_rank() == 1 and "--fault" in sys.argv:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
dist.destroy_process_group()
