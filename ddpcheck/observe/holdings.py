"""What a training holds, by name: parameters, buffers, the state of optimizers, schedules, samplers and streams."""

from __future__ import annotations

import dataclasses
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

from ddpcheck.checks.holding import Kind, Value
from ddpcheck.observe import randomness, sites
from ddpcheck.observe.digest import digest, digest_of_parts

DEPTH = 5
"""How deep the user's own objects are looked into."""
MOST = 200_000
"""Values of one training that are looked at."""

Found = Iterator[tuple[str, Any]]


def bare(module: torch.nn.Module) -> torch.nn.Module:
    """The module itself, without DistributedDataParallel or torch.compile around it."""
    while True:
        if isinstance(module, DistributedDataParallel):
            module = module.module
        elif isinstance(inner := module._modules.get("_orig_mod"), torch.nn.Module):
            module = inner
        else:
            return module


def holders(training: Any) -> dict[str, Any]:
    """What in a training has state of its own, by name: modules, optimizers, samplers … each once."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    _look(training, "", DEPTH, found, seen)
    return found


def modules(training: Any) -> dict[str, torch.nn.Module]:
    """The modules of a training that are in no other of its modules."""
    found = {name: one for name, one in holders(training).items() if isinstance(one, torch.nn.Module)}
    inner = {id(m) for one in found.values() for m in one.modules() if m is not one}
    return {name: one for name, one in found.items() if id(one) not in inner}


def values(training: Any) -> dict[str, Value]:
    """Everything that a training holds, each tensor as a digest, and the global random states."""
    found: dict[str, Value] = {}
    owners = _names_of_parameters(training)
    for name, one in holders(training).items():
        for key, value in _values_of(one, owners):
            if len(found) < MOST:
                found[f"{name}.{key}" if name and key else name or key] = value
    for stream, text in randomness.digests().items():
        found[f"random state of {stream}"] = Value(kind="random", digest=text)
    return found


def _names_of_parameters(training: Any) -> dict[int, str]:
    return {
        id(parameter): name
        for module in modules(training).values()
        for name, parameter in bare(module).named_parameters()
    }


# --- finding what has state


def _look(one: Any, name: str, depth: int, found: dict[str, Any], seen: set[int]) -> None:
    if isinstance(one, (bool, int, float)):
        found[name or "value"] = one
        return
    if one is None or isinstance(one, (str, bytes, type, Dataset)) or id(one) in seen or depth < 0:
        return
    seen.add(id(one))
    if _has_state(one):
        found[name or type(one).__name__] = one
        if isinstance(one, DataLoader):
            _look(one.sampler, _below(name, "sampler"), depth - 1, found, seen)
            _look(getattr(one.batch_sampler, "sampler", None), _below(name, "sampler"), depth - 1, found, seen)
            _look(one.generator, _below(name, "generator"), depth - 1, found, seen)
        return
    if isinstance(one, Mapping):
        for key, value in list(one.items()):
            _look(value, _below(name, key), depth - 1, found, seen)
    elif isinstance(one, tuple) and hasattr(one, "_fields"):
        for key in one._fields:
            _look(getattr(one, key), _below(name, key), depth - 1, found, seen)
    elif isinstance(one, (list, tuple)):
        if not _is_series(one):
            for place, value in enumerate(one):
                _look(value, _below(name, place), depth - 1, found, seen)
    elif dataclasses.is_dataclass(one) or _is_users_class(type(one)):
        for key, value in list(getattr(one, "__dict__", {}).items()):
            _look(value, _below(name, key), depth - 1, found, seen)
        for key in getattr(type(one), "__slots__", ()):
            _look(getattr(one, key, None), _below(name, key), depth - 1, found, seen)


def _is_series(one: list[Any] | tuple[Any, ...]) -> bool:
    """Numbers in their hundreds are data or a history, and no state of the training."""
    return len(one) > 100 and isinstance(one[0], (bool, int, float))


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _has_state(one: Any) -> bool:
    kinds = (torch.nn.Module, torch.Tensor, torch.Generator, random.Random, DataLoader, Sampler)
    if isinstance(one, kinds) or _is_numpy_generator(one):
        return True
    # A trainer of the user's own may have a state_dict() as well: its parts say more.
    return callable(getattr(one, "state_dict", None)) and not all(map(_is_users_class, type(one).__mro__[:-1]))


def _is_numpy_generator(one: Any) -> bool:
    return type(one).__module__.startswith("numpy.random") and (
        hasattr(one, "bit_generator") or hasattr(one, "get_state")
    )


def _is_users_class(kind: type) -> bool:
    """Whether a class is the user's own: a trainer."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return isinstance(file, str) and sites.is_users_file(file)


# --- what it holds


def _values_of(one: Any, owners: dict[int, str]) -> Iterator[tuple[str, Value]]:
    if isinstance(one, (bool, int, float)):
        yield "", Value(kind="counter", shown=repr(one))
    elif isinstance(one, torch.Tensor):
        yield "", tensor("tensor", one)
    elif isinstance(one, torch.nn.Module):
        inner = bare(one)
        for name, parameter in inner.named_parameters():
            yield name, tensor("parameter", parameter)
        lasting = set(inner.state_dict(keep_vars=True))
        for name, buffer in inner.named_buffers():
            yield name, tensor("buffer" if name in lasting else "buffer that is not saved", buffer)
    elif isinstance(one, torch.optim.Optimizer):
        yield from _of_optimizer(one, owners)
    elif isinstance(one, torch.Generator):
        yield "", Value(kind="random", digest=digest(one.get_state()))
    elif isinstance(one, random.Random):
        yield "", Value(kind="random", digest=digest_of_parts([repr(one.getstate()).encode()]))
    elif _is_numpy_generator(one):
        state = one.bit_generator.state if hasattr(one, "bit_generator") else one.get_state()
        yield "", Value(kind="random", digest=digest_of_parts([repr(state).encode()]))
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
            name = owners.get(id(parameter), f"parameter {place} of group {number}")
            yield from _flat("optimizer", optimizer.state.get(parameter, {}), f"state of {name}")


def _flat(kind: Kind, one: Any, name: str) -> Iterator[tuple[str, Value]]:
    if isinstance(one, torch.Tensor):
        yield name, tensor(kind, one)
    elif isinstance(one, Mapping):
        for key, value in one.items():
            yield from _flat(kind, value, _below(name, key))
    elif isinstance(one, (list, tuple)):
        for place, value in enumerate(one):
            yield from _flat(kind, value, f"{name}[{place}]")
    elif isinstance(one, (bool, int, float, str)) or one is None:
        yield name, Value(kind=kind, shown=repr(one))


def tensor(kind: Kind, one: torch.Tensor) -> Value:
    """A tensor as a value: its digest, and where it is."""
    plain = one.detach()
    shown = f"{str(plain.dtype).removeprefix('torch.')}{list(plain.shape)}"
    if plain.numel() == 1 and not plain.is_meta:
        shown = f"{plain.item()!r}"
    elif plain.numel() and plain.layout is torch.strided and not plain.is_meta and plain.is_floating_point():
        shown += f" with norm {float(plain.double().norm()):.6g}"
    return Value(
        kind=kind,
        digest="" if plain.is_meta else digest(plain),
        shown=shown,
        device=str(plain.device),
        form=f"{plain.dtype}{list(plain.shape)}",
    )
