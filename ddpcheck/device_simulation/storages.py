"""Which simulated device a tensor lies on: a fact of its storage, as in real life.

Views, detached tensors, ``.data``, what autograd saves and what it hands on
all share a storage, so that they carry the device without our doing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing import reductions

from ddpcheck.device_simulation.errors import NotSimulated

CPU = torch.device("cpu")
_weak_reference: Any = reductions.StorageWeakRef
"""To a storage: its address is not used again while it lives."""


class Floating:
    """A storage that torch made for itself: it takes the device of the first tensor that it meets."""


class Shared:
    """A storage that carries values of several devices, as DDP's buckets do here: it takes part with any."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[int, torch.device]] = {}

    def tell(self, start: int, length: int, device: torch.device) -> None:
        """So many elements from there belong to a tensor on this device."""
        self._parts[start] = (start + length, device)

    def device_at(self, offset: int) -> torch.device:
        """The device of an element, as far as it is known; else that of any part."""
        for start, (end, device) in self._parts.items():
            if start <= offset < end:
                return device
        return next((device for _, device in self._parts.values()), CPU)


FLOATING = Floating()


def floating() -> Place:
    """Where torch's own new tensors lie, for the time being."""
    return FLOATING


Place = torch.device | Floating | Shared


@dataclass
class Storages:
    """Where the storages lie that are not on the CPU; all others are."""

    _known: dict[int, tuple[Any, Place]] = field(default_factory=dict)
    _pinned: dict[int, Any] = field(default_factory=dict)
    _swept_at: int = 256

    def place_of(self, tensor: Tensor) -> Place:
        """Where a tensor's storage lies."""
        # Plain attribute reads of ours are no business of anybody's function modes.
        with torch._C.DisableTorchFunction():
            key = key_of(tensor)
            if key is None:
                return _real_device(tensor)
            known = self._known.get(key)
            return known[1] if known else _real_device(tensor)

    def device_of(self, tensor: Tensor) -> torch.device:
        """The device that a tensor says it is on."""
        place = self.place_of(tensor)
        if isinstance(place, torch.device):
            return place
        if isinstance(place, Shared):
            with torch._C.DisableTorchFunction():
                return place.device_at(int(tensor.storage_offset()))
        return CPU

    def put(self, tensor: Tensor, place: Place) -> None:
        """Let a tensor's storage lie there, and everything that shares it."""
        with torch._C.DisableTorchFunction():
            storage = _storage_of(tensor)
        if storage is not None:
            self.put_storage(storage, place)

    def pin(self, tensor: Tensor) -> None:
        """Let a tensor on the CPU say that its memory is pinned."""
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
        for key, reference in list(self._pinned.items()):
            if reference.expired():
                self._pinned.pop(key, None)
        self._pinned[storage._cdata] = _weak_reference(storage)

    def is_pinned(self, tensor: Tensor) -> bool:
        """Whether it says so."""
        with torch._C.DisableTorchFunction():
            return key_of(tensor) in self._pinned

    def put_storage(self, storage: Any, place: Place) -> None:
        """Let a storage lie there."""
        if place == CPU:
            self._known.pop(storage._cdata, None)
            return
        if len(self._known) > self._swept_at:
            self._sweep()
        # The weak reference keeps the address from being used again while we know something about it.
        self._known[storage._cdata] = (_weak_reference(storage), place)

    def place_of_storage(self, storage: Any) -> Place | None:
        """Where a storage lies, or None where it is no simulated one."""
        known = self._known.get(storage._cdata)
        return known[1] if known else None

    def _sweep(self) -> None:
        # In place, since another thread may put something meanwhile.
        for key, known in list(self._known.items()):
            if known[0].expired():
                self._known.pop(key, None)
        self._swept_at = 2 * len(self._known) + 256


def key_of(tensor: Tensor) -> int | None:
    """What tells storages apart, or None for a tensor that has none."""
    storage = _storage_of(tensor)
    return None if storage is None else int(storage._cdata)


def _storage_of(tensor: Tensor) -> Any:
    if tensor.layout != torch.strided:
        inner = _values_of(tensor)
        return None if inner is None else _storage_of(inner)
    try:
        return torch._C.TensorBase.untyped_storage(tensor)
    except (NotImplementedError, RuntimeError):
        return None


def _values_of(tensor: Tensor) -> Tensor | None:
    if tensor.layout == torch.sparse_coo:
        return tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return tensor.values()
    return None


_RAW_DEVICE: Any = torch._C.TensorBase.device


def _real_device(tensor: Tensor) -> torch.device:
    device: torch.device = _RAW_DEVICE.__get__(tensor)
    if device.type == "cuda":
        raise NotSimulated(
            "A tensor on a real GPU, or of a class that wraps others",
            "Make it inside of the simulation, or copy it to the CPU before.",
        )
    return device
