"""Rank 0 reduces where rank 1 gathers."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(4)
if dist.get_rank() == 0:
    dist.all_reduce(value)
else:
    dist.all_gather([torch.empty(4), torch.empty(4)], value)
dist.destroy_process_group()
