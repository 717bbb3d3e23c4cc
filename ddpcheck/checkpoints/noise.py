"""Noise in the place of what a module holds: whatever is still noise after a load was not loaded."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ddpcheck.observe.holders import is_lazy
from ddpcheck.observe.holdings import tensors_of


@torch.no_grad()
def overwrite(modules: Iterable[torch.nn.Module], seed: int) -> None:
    """Overwrite every parameter and saved buffer of these modules; other numbers for another seed."""
    generator = torch.Generator().manual_seed(104_729 + seed)
    for module in modules:
        for _, kind, tensor in tensors_of(module):
            there = not tensor.is_meta and not is_lazy(tensor)
            if kind in ("parameter", "buffer") and there and tensor.numel():
                _overwrite(tensor, generator)


def _overwrite(tensor: torch.Tensor, generator: torch.Generator) -> None:
    if tensor.is_floating_point():
        fresh = torch.rand(tensor.shape, generator=generator) + 0.5
    elif tensor.is_complex():
        fresh = torch.rand(tensor.shape, generator=generator).to(tensor.dtype)
    elif tensor.dtype is torch.bool:
        fresh = ~tensor.detach().cpu()
    else:
        fresh = tensor.detach().cpu() + 1
    tensor.detach().copy_(fresh.to(tensor.dtype))
