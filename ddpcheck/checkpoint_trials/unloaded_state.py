"""Everything that a training's modules hold, marked before a load: what still has its mark afterwards was not loaded.

A checkpoint may hold any value, that of a mark as well. So a load is tried over
two marks: an element that it writes is the same after both, and one that it
leaves out is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.training_state.held_values import tensors_of
from ddpcheck.probes.training_state.state_holders import below, modules

MARKS = (0, 1)
"""Two values that every type of numbers has."""


@torch.no_grad()
def mark(training: Any, value: int, but: Collection[str] = ()) -> list[str]:
    """Overwrite every parameter and saved buffer ``but`` these; the names of those that cannot be."""
    refused = []
    for name, tensor in _lasting(training):
        if not _is_there(tensor) or name in but:
            continue
        plain = readable_memory.strided(tensor)
        if plain is None:
            refused.append(name)
            continue
        try:
            plain.copy_(torch.full(plain.shape, complex(value, value) if plain.is_complex() else value))
        except (RuntimeError, NotImplementedError, TypeError):  # expanded, sparse, quantized …
            refused.append(name)
    return refused


def places(training: Any) -> dict[str, int | None]:
    """Where the elements of each tensor lie; None where there are none yet."""
    plain = {name: readable_memory.strided(tensor) for name, tensor in _lasting(training)}
    return {name: tensor.data_ptr() if tensor is not None else None for name, tensor in plain.items()}


def held(training: Any) -> dict[str, torch.Tensor | None]:
    """A copy of what it holds now; None for a tensor that has no elements yet. What cannot be looked at is left out."""
    found: dict[str, torch.Tensor | None] = {}
    for name, tensor in _lasting(training):
        plain = readable_memory.local(tensor)
        if plain is not None:
            found[name] = plain.cpu().clone()
        elif not _is_there(tensor):
            found[name] = None
    return found


def left(first: dict[str, torch.Tensor | None], second: dict[str, torch.Tensor | None]) -> dict[str, tuple[int, int]]:
    """By the values after a load over one mark and over the other: how many elements it has left out, of how many."""
    found = {}
    for name, one in second.items():
        other = first.get(name)
        if one is None:
            found[name] = (1, 1)
        elif other is not None and (other.shape, other.dtype) == (one.shape, one.dtype):
            number = int(_differ(one, other).sum())
            if number:
                found[name] = (number, one.numel())
    return found


def _differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where they are not the same to the bit: a value that is no number equals itself."""
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
        return _differ(one, other).any(-1)
    size = one.element_size()
    pairs = [t.contiguous().reshape(-1).view(torch.uint8).reshape(*t.shape, size) for t in (one, other)]
    return (pairs[0] != pairs[1]).any(-1)


def _lasting(training: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """What a checkpoint has of the modules, each tensor once."""
    seen: set[int] = set()
    for owner, module in modules(training).items():
        for name, kind, tensor in tensors_of(module):
            if kind in ("parameter", "buffer") and id(tensor) not in seen:
                seen.add(id(tensor))
                yield below(owner, name), tensor


def _is_there(tensor: torch.Tensor) -> bool:
    return not tensor.is_meta and not is_lazy(tensor)
