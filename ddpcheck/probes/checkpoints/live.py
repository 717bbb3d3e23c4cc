"""What is being trained at this moment, by where it lies in memory: how a saved tensor is known again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from ddpcheck.evidence import Layout
from ddpcheck.evidence.saved_state import Role
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts import declared, models
from ddpcheck.probes.optimizers import steps
from ddpcheck.probes.recording import recorder

MOST = 1 << 14
"""Tensors of models that are looked at."""

Where = tuple[int, tuple[int, ...]]
"""The address of a tensor's elements, and its shape."""


class Live(NamedTuple):
    """A tensor of the training."""

    role: Role
    of: str
    key: str
    layout: Layout | None
    whole: bool = False
    """What a copy has all of: the training itself has parts."""


class Training:
    """The models and optimizers of this process as they are now."""

    def __init__(self, writer: recorder.Recorder) -> None:
        self._writer = writer
        self._by_place: dict[Where, Live] = {}
        self.names: dict[int, tuple[str, Layout | None]] = {}
        """By the id of a parameter of some model."""
        self.paths: dict[str, list[tuple[Role, tuple[int, ...], torch.Tensor]]] = {}
        """By the path in a model, what lies there: to know a copy by its name."""
        for path, tensor, layout, buffer in models.tensors(writer, MOST):
            role: Role = "buffer" if buffer else "parameter"
            self._add(tensor, Live(role, path, "", layout))
            self.names.setdefault(id(tensor), (path, layout))
            shape = layout.shape if layout is not None and layout.ground == "DTensor" else tuple(tensor.shape)
            self.paths.setdefault(path, []).append((role, shape, tensor))
        for optimizer in steps.optimizers():
            for parameter in (one for group in optimizer.param_groups for one in group["params"]):
                path, layout = self.names.get(id(parameter), ("", None))
                for key, tensor, own in moments(writer, optimizer, parameter, layout):
                    self._add(tensor, Live("moment", path, key, own))

    def _add(self, tensor: torch.Tensor, live: Live) -> None:
        place = where(tensor)
        if place is not None:
            self._by_place.setdefault(place, live)

    def at(self, tensor: torch.Tensor) -> Live | None:
        """What lies where this tensor lies."""
        place = where(tensor)
        return self._by_place.get(place) if place is not None else None

    def called(self, name: str, tensor: torch.Tensor) -> Live | None:
        """What of a model a copy of another memory is by its name: the longest end of it that is a path."""
        parts = name.split(".")
        for begin in range(len(parts)):
            path = ".".join(parts[begin:])
            for role, shape, one in self.paths.get(path, ()):
                if shape == tuple(tensor.shape):
                    return Live(role, path, "", None, readable_memory.is_dtensor(one))
        return None

    def holds(self, path: str, copy: torch.Tensor) -> bool:
        """Whether what the models have at a path has the elements of this copy, whatever their precision."""
        return any(_equal(one, copy) for _, _, one in self.paths.get(path, ()))

    def lacks(self, path: str, copy: torch.Tensor) -> bool:
        """Whether all that the models have at a path was looked at, and has others."""
        there = [one for _, _, one in self.paths.get(path, ())]
        return bool(there) and all(_equal(one, copy) is False for one in there)


def _equal(one: torch.Tensor, copy: torch.Tensor) -> bool | None:
    """Whether two have the same elements; None where that cannot be seen."""
    if not (type(one) in (torch.Tensor, torch.nn.Parameter) and readable_memory.is_on_cpu(one)):
        return None
    return one.shape == copy.shape and torch.equal(one.detach().to(copy.dtype), copy.detach())


def moments(
    writer: recorder.Recorder, optimizer: Any, parameter: torch.Tensor, layout: Layout | None
) -> list[tuple[str, torch.Tensor, Layout | None]]:
    """The tensors that an optimizer keeps for a parameter that lies so: the key, the tensor, how it lies."""
    kept = optimizer.state.get(parameter)
    found = []
    for key, value in kept.items() if isinstance(kept, Mapping) else ():
        if isinstance(value, torch.Tensor):
            own = declared.layout_of(writer, value, whole=True)
            if own is None and layout is not None and _lies_as(value, parameter):
                own = layout
            found.append((str(key), value, own))
    return found


def _lies_as(value: torch.Tensor, parameter: torch.Tensor) -> bool:
    part = readable_memory.own_part(parameter)
    return part is not None and part.dim() > 0 and value.shape == part.shape


def where(tensor: torch.Tensor) -> Where | None:
    """The place of a tensor's elements, where they are known: of a DTensor, those of its part."""
    own = readable_memory.own_part(tensor)
    if own is None:
        return None
    plain = readable_memory.in_a_row(own)
    return (plain.data_ptr(), tuple(plain.shape)) if plain is not None and plain.numel() else None
