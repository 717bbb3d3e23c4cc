"""Rank 1 sleeps, and never comes to the reduction in which rank 0 waits."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(600)
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
