"""What a training holds, by name: parameters, buffers, the state of optimizers, schedules, samplers and streams."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.utils.data import Sampler

from ddpcheck.evidence.training_state import Kind, Value
from ddpcheck.probes.ddp.model_state import bare
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.digests.exact_digests import Unreadable, bytes_digest, digest_of_parts
from ddpcheck.probes.randomness import random_states
from ddpcheck.probes.training_state.state_holders import PLAIN, below, holders, is_numpy_generator, modules

MOST = 200_000
"""Values of one training that are looked at."""


def values(training: Any) -> dict[str, Value]:
    """Everything that a training holds, each tensor as a digest, and the global random states."""
    found: dict[str, Value] = {}
    owners = _names_of_parameters(training)
    for name, one in holders(training).items():
        for key, value in _values_of(one, owners):
            if len(found) < MOST:
                found[below(name, key) if key else name] = value
    for stream, text in random_states.digests().items():
        found[f"random state of {stream}"] = Value(kind="random", digest=text)
    return found


def _names_of_parameters(training: Any) -> dict[int, str]:
    """The parameters' names; with that of their module, where there are several modules."""
    outer = modules(training)
    return {
        id(tensor): name if len(outer) == 1 else f"{owner}.{name}"
        for owner, module in outer.items()
        for name, kind, tensor in tensors_of(module)
        if kind == "parameter"
    }


# --- modules


def parts_of(module: torch.nn.Module, prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    """A module and those in it, by names that are the same in DDP and outside of it."""
    inner = bare(module)
    yield prefix, inner
    for name, child in inner._modules.items():
        if child is not None:
            yield from parts_of(child, f"{prefix}{name}.")


def tensors_of(module: torch.nn.Module) -> Iterator[tuple[str, Kind, torch.Tensor]]:
    """The parameters and buffers of a module, by such names."""
    for prefix, part in parts_of(module):
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield prefix + name, "parameter", parameter
        for name, buffer in part._buffers.items():
            if buffer is not None:
                lasting = name not in part._non_persistent_buffers_set
                yield prefix + name, "buffer" if lasting else "buffer that is not saved", buffer


def _of_module(module: torch.nn.Module) -> Iterator[tuple[str, Value]]:
    for name, kind, one in tensors_of(module):
        yield name, tensor(kind, one)
    for prefix, part in parts_of(module):
        if isinstance(part, DistributedDataParallel):
            continue
        for key, value in vars(part).items():
            if isinstance(value, PLAIN) and key != "training" and not key.startswith("_"):
                yield f"{prefix}{key}", Value(kind="counter", shown=repr(value))
        if type(part).get_extra_state is not torch.nn.Module.get_extra_state:
            yield from _flat("state", part.get_extra_state(), f"{prefix}extra state")


# --- what each kind holds


def _values_of(one: Any, owners: dict[int, str]) -> Iterator[tuple[str, Value]]:
    if isinstance(one, PLAIN):
        yield "", Value(kind="counter", shown=repr(one))
    elif isinstance(one, torch.Tensor):
        yield "", tensor("tensor", one)
    elif isinstance(one, torch.nn.Module):
        yield from _of_module(one)
    elif isinstance(one, torch.optim.Optimizer):
        yield from _of_optimizer(one, owners)
    elif isinstance(one, torch.Generator):
        yield "", Value(kind="random", digest=bytes_digest(one.get_state()))
    elif isinstance(one, random.Random):
        yield "", Value(kind="random", digest=digest_of_parts([repr(one.getstate()).encode()]))
    elif is_numpy_generator(one):
        state = one.bit_generator.state if hasattr(one, "bit_generator") else one.get_state()
        yield "", Value(kind="random", digest=digest_of_parts([repr(state).encode()]))
    elif hasattr(one, "dtype") and hasattr(one, "tobytes"):  # numpy's
        text = f"{one.dtype}{list(one.shape)}"
        yield "", Value(kind="counter", digest=digest_of_parts([one.tobytes()]), shown=text, form=text)
    elif callable(getattr(one, "state_dict", None)):
        yield from _flat("state", one.state_dict(), "")
    if isinstance(one, Sampler) and isinstance(epoch := getattr(one, "epoch", None), int):
        yield "epoch", Value(kind="sampler", shown=str(epoch))


def _of_optimizer(optimizer: torch.optim.Optimizer, owners: dict[int, str]) -> Iterator[tuple[str, Value]]:
    """The state of an optimizer, by the names of the parameters that it belongs to."""
    for number, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key != "params":
                yield from _flat("optimizer", value, f"param_groups[{number}].{key}")
        for place, parameter in enumerate(group["params"]):
            name = owners.get(id(parameter), f"parameter {place} of group {number}, which no module holds")
            yield from _flat("optimizer", optimizer.state.get(parameter) or {}, f"state of {name}")


def _flat(kind: Kind, one: Any, name: str) -> Iterator[tuple[str, Value]]:
    if isinstance(one, torch.Tensor):
        yield name, tensor(kind, one)
    elif isinstance(one, Mapping):
        for key, value in one.items():
            yield from _flat(kind, value, below(name, key))
    elif isinstance(one, (list, tuple)):
        for place, value in enumerate(one):
            yield from _flat(kind, value, f"{name}[{place}]")
    elif isinstance(one, PLAIN) or one is None:
        yield name, Value(kind=kind, shown=repr(one))


def tensor(kind: Kind, one: torch.Tensor) -> Value:
    """A tensor as a value: the digest of its bytes, the same wherever it is, and where it is.

    Of a DTensor it is the part of this rank. Raises Unreadable for a tensor whose elements cannot be looked at.
    """
    if one.is_meta or is_lazy(one):
        return Value(kind=kind, shown="not there yet", device=str(one.device), form="not there yet")
    plain = readable_memory.local(one)
    if plain is None:
        raise Unreadable(f"the elements of a {type(one).__name__} on {one.device} cannot be looked at")
    shown = f"{str(plain.dtype).removeprefix('torch.')}{list(plain.shape)}"
    if plain.numel() == 1:
        shown = f"{plain.item()!r}"
    elif plain.numel() and plain.is_floating_point():
        shown += f" with norm {float(plain.double().norm()):.6g}"
    form = f"{plain.dtype}{list(plain.shape)}"
    return Value(kind=kind, digest=bytes_digest(plain), shown=shown, device=str(plain.device), form=form)
