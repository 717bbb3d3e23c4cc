"""Gradients reduced in the order of ranks, so that two trainings can be compared to the bit.

DDP lays its buckets out anew after its first backward, and a backend adds up
the ranks' parts of a bucket in an order that depends on the place in it. With
three ranks or more the last bits of a sum depend on that order: a wrapper that
is new after a resume would differ by these from the one that went on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def reduce_in_order(modules: Iterable[torch.nn.Module]) -> None:
    """Have these wrappers add up gradients rank by rank; those that have a hook of the user's are left alone."""
    for module in modules:
        if isinstance(module, DistributedDataParallel) and not getattr(module, "_comm_hooks", None):
            group = module.process_group
            if dist.get_world_size(group) > 2:  # two numbers have one sum
                module.register_comm_hook(group, _in_order)


def _in_order(group: Any, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations, and these are text
    own = bucket.buffer()
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, own, group=group)
    total = parts[0]
    for part in parts[1:]:
        total += part
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(total.div_(len(parts)))
    return done
