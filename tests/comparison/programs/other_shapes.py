"""Both ranks reduce, tensors of other shapes."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(10 if dist.get_rank() == 0 else 20)
dist.all_reduce(value)
dist.destroy_process_group()
