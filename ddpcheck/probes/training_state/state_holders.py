"""What in a training has state of its own: found by walking through whatever the user keeps it in."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import random
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from ddpcheck.probes.ddp.model_state import bare
from ddpcheck.probes.recording import user_lines

DEPTH = 6
"""How deep objects are looked into."""
MOST = 50_000
"""Objects of one training that are looked at."""
PLAIN = (bool, int, float, complex, str)
"""What counts as a counter, where steps move it."""

_BAGS = (types.SimpleNamespace, argparse.Namespace)
_LEAVES = (bytes, type, types.ModuleType, types.BuiltinFunctionType, Dataset)
"""What has nothing in it that a step would change and a checkpoint would hold."""


def holders(training: Any) -> dict[str, Any]:
    """Modules, optimizers, samplers, generators, counters … of a training, by the way that leads there.

    A module that is kept under two names has both; everything else has one.
    """
    look = _Look()
    look.into(training, "", DEPTH, counts=True)
    return look.found


def modules(training: Any) -> dict[str, torch.nn.Module]:
    """The modules of a training that are in no other of its modules, each under its first name."""
    found: dict[int, tuple[str, torch.nn.Module]] = {}
    for name, one in holders(training).items():
        if isinstance(one, torch.nn.Module):
            found.setdefault(id(one), (name, one))
    inner = {id(m) for _, one in found.values() for m in one.modules() if m is not one}
    return {name: one for key, (name, one) in found.items() if key not in inner}


class _Look:
    """One walk through a training."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._seen: set[int] = set()

    def into(self, one: Any, name: str, depth: int, counts: bool) -> None:
        """Look at one object; ``counts``: plain values that it holds are the user's counters."""
        if isinstance(one, PLAIN) or _is_array(one):
            if counts:
                self.found[name or "value"] = one
            return
        if isinstance(one, torch.nn.Module):
            self.found[name or type(bare(one)).__name__] = one  # under each of its names
        if one is None or isinstance(one, _LEAVES) or id(one) in self._seen or depth < 0 or len(self._seen) > MOST:
            return
        self._seen.add(id(one))
        if isinstance(one, torch.nn.Module):
            return
        if has_state(one):
            self.found[name or type(one).__name__] = one
            if isinstance(one, DataLoader):
                for key, part in (("sampler", one.sampler), ("generator", one.generator)):
                    self.into(part, below(name, key), depth - 1, False)
                self.into(getattr(one.batch_sampler, "sampler", None), below(name, "sampler"), depth - 1, False)
            return
        for place, value, mine in _parts(one):
            self.into(value, below(name, place), depth - 1, counts and mine)


def _parts(one: Any) -> Iterator[tuple[object, Any, bool]]:
    """What an object holds, by its keys, and whether plain values in it are the user's own."""
    if isinstance(one, Mapping):
        with contextlib.suppress(Exception):  # a mapping of the user's own may do anything when it is looked at
            for key in list(one):
                yield key, one[key], True
    elif isinstance(one, tuple) and hasattr(one, "_fields"):
        for key in one._fields:
            yield key, getattr(one, key), True
    elif isinstance(one, (list, tuple, collections.deque)):
        if not all(isinstance(value, PLAIN) for value in one):  # numbers in a row are a history
            for place, value in enumerate(one):
                yield place, value, True
    elif isinstance(one, types.FunctionType):
        names = one.__code__.co_freevars
        for key, cell in zip(names, one.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a cell that is still empty
                yield key, cell.cell_contents, True
        for key, value in vars(one).items():
            yield key, value, True
    elif isinstance(one, types.MethodType):
        yield "self", one.__self__, True
    else:
        mine = isinstance(one, _BAGS) or dataclasses.is_dataclass(one) or is_users_class(type(one))
        for key, value in list(getattr(one, "__dict__", {}).items()):
            yield key, value, mine
        for kind in type(one).__mro__:
            slots = vars(kind).get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else tuple(slots):
                yield slot, getattr(one, slot, None), mine


def below(name: str, key: object) -> str:
    """The name of what lies under a key."""
    return f"{name}.{key}" if name else str(key)


def has_state(one: Any) -> bool:
    """Whether an object is recorded as a whole, and not part by part."""
    if isinstance(one, (torch.Tensor, torch.Generator, random.Random, DataLoader, Sampler)) or is_numpy_generator(one):
        return True
    if isinstance(one, Mapping):
        return False
    # A trainer of the user's own may have a state_dict() as well: its parts say more.
    owner = next((kind for kind in type(one).__mro__ if "state_dict" in vars(kind)), None)
    return owner is not None and (not is_users_class(owner) or isinstance(one, torch.optim.Optimizer))


def is_numpy_generator(one: Any) -> bool:
    """Whether it draws random numbers for numpy."""
    known = type(one).__module__.startswith("numpy.random")
    return known and (hasattr(one, "bit_generator") or hasattr(one, "get_state"))


def _is_array(one: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(one, (numpy.ndarray, numpy.generic))


def is_users_class(kind: type) -> bool:
    """Whether a class is the user's own: a trainer."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return isinstance(file, str) and user_lines.is_users_file(file)
