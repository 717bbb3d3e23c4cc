"""Which ranks hold the same elements of a model's tensors, as is declared, whatever has been done to the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.probes.collectives.process_groups import ranks_of
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts import declared


class HeldAlike(NamedTuple):
    """What is declared of a tensor."""

    placements: tuple[str, ...] = ()
    """Of a DTensor."""
    holders: tuple[int, ...] | None = None
    """None of a tensor of a plain model, which is the same on all ranks; empty where nobody says."""


def of_model(
    module: torch.nn.Module, parameters: Mapping[str, torch.Tensor], tensors: Sequence[tuple[str, torch.Tensor | None]]
) -> dict[str, HeldAlike]:
    """The holders of each of these tensors of a model: parameters, buffers or gradients, by name.

    A plain model is meant to be the same on all ranks. In one with DTensors, or in DDP over a dimension of a mesh,
    a plain tensor is so along the wrapper's ranks, if there is a wrapper; else nobody says.
    """
    wrapper = wrapper_of(module)
    on_mesh = wrapper is not None and is_on_mesh(wrapper)
    if not on_mesh and not any(map(readable_memory.is_dtensor, [*parameters.values(), *module.buffers()])):
        return {name: HeldAlike() for name, _ in tensors}
    of_wrapper = _of_wrapper(wrapper)
    found = {}
    for name, tensor in tensors:
        known = tensor if tensor is not None else parameters.get(name)
        if readable_memory.is_dtensor(known):
            found[name] = HeldAlike(*declared.holders_of(known))
        else:
            found[name] = HeldAlike(holders=() if wrapper is None or _is_ignored(wrapper, name) else of_wrapper)
    return found


def wrapper_of(module: torch.nn.Module) -> DistributedDataParallel | None:
    """The DDP wrapper that a model is in, compiled or not."""
    if isinstance(module, DistributedDataParallel):
        return module
    if "_orig_mod" in module._modules and (inner := module._modules["_orig_mod"]) is not None:
        return wrapper_of(inner)
    return None


def is_on_mesh(wrapper: DistributedDataParallel) -> bool:
    """Whether it was given a dimension of a mesh: along the others its ranks may hold other elements."""
    return getattr(wrapper, "device_mesh", None) is not None


def _of_wrapper(wrapper: DistributedDataParallel | None) -> tuple[int, ...]:
    return ranks_of(wrapper.process_group) if wrapper is not None else ()


def _is_ignored(wrapper: DistributedDataParallel, name: str) -> bool:
    return name.removesuffix(" (buffer)") in wrapper.parameters_to_ignore
