"""Gradients reduced in the order of ranks, so that two trainings can be compared to the bit.

DDP lays its buckets out anew after its first backward, and a backend adds up
the ranks' parts of a bucket in an order that depends on the place in it. With
three ranks or more the last bits of a sum depend on that order: a wrapper that
is new after a resume would differ by these from the one that went on.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def reduce_in_order(modules: Iterable[torch.nn.Module]) -> bool:
    """Have these wrappers add up gradients rank by rank, from their first forward on; whether all do.

    Those that have a hook of the user's by then are left alone.
    """
    several = [
        module
        for module in modules
        # Two numbers have one sum.
        if isinstance(module, DistributedDataParallel) and dist.get_world_size(module.process_group) > 2
    ]
    for module in several:
        if module not in _in_hand:
            _in_hand[module] = True
            _at_first_forward(module)
    return all(_in_hand[module] for module in several)


_in_hand: weakref.WeakKeyDictionary[DistributedDataParallel, bool] = weakref.WeakKeyDictionary()
"""Whether a wrapper adds up gradients in this order, or will."""


def _at_first_forward(module: DistributedDataParallel) -> None:
    def register(*_: Any) -> None:
        handle.remove()
        _in_hand[module] = False
        if not getattr(module, "_comm_hooks", None):
            with contextlib.suppress(RuntimeError):  # torch has a hook of its own there, which is on no list
                module.register_comm_hook(module.process_group, _in_order)
                _in_hand[module] = True

    handle = module.register_forward_pre_hook(register)


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
