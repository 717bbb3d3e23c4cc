"""Noise in the place of what a training's modules hold: whatever is still noise after a load was not loaded."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import torch

from ddpcheck.observe.holders import below, is_lazy, modules
from ddpcheck.observe.holdings import tensors_of

LEAST, WIDTH = 256.0, 64.0
"""Noise of floating point lies where hardly a weight does: an element that equals it was not loaded."""


@torch.no_grad()
def overwrite(training: Any, seed: int) -> None:
    """Overwrite every parameter and saved buffer; with other numbers for another seed."""
    for name, tensor in _lasting(training):
        if tensor.is_floating_point() or tensor.is_complex():
            fresh = _noise(tensor, name, seed)
        elif tensor.dtype is torch.bool:
            fresh = ~tensor.detach()
        else:
            fresh = tensor.detach() + 1
        tensor.detach().copy_(fresh)


@torch.no_grad()
def left(training: Any, seed: int) -> dict[str, tuple[int, int]]:
    """The tensors that still hold some of this noise: how many of their elements do, of how many."""
    found = {}
    for name, tensor in _lasting(training):
        if tensor.is_floating_point() or tensor.is_complex():
            same = _wide(tensor.detach().cpu()) == _wide(_noise(tensor, name, seed))
            if same.any():
                found[name] = (int(same.sum()), tensor.numel())
    return found


def _lasting(training: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """What a checkpoint has of the modules, each tensor once."""
    seen: set[int] = set()
    for owner, module in modules(training).items():
        for name, kind, tensor in tensors_of(module):
            there = not tensor.is_meta and not is_lazy(tensor) and tensor.numel()
            if kind in ("parameter", "buffer") and there and id(tensor) not in seen:
                seen.add(id(tensor))
                yield below(owner, name), tensor


def _noise(tensor: torch.Tensor, name: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    return (torch.rand(tensor.shape, generator=generator) * WIDTH + LEAST).to(tensor.dtype)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """As numbers that can be compared: those of eight bits cannot."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
