"""What tensors and storages say of themselves: ``device``, ``is_cuda`` and the like tell the simulated device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ddpcheck.device_simulation.errors import NotSimulated
from ddpcheck.device_simulation.storages import CPU, Storages
from ddpcheck.device_simulation.temporary_patches import Patches


def patch_tensors(patches: Patches, storages: Storages) -> None:
    """Tensors answer with their simulated device, wherever they are asked: in hooks and in torch's own Python too."""
    device_of = storages.device_of

    def get_device(tensor: Tensor) -> int:
        return -1 if (device := device_of(tensor)).index is None else int(device.index)

    def no_array_interface(tensor: Tensor) -> Any:
        if device_of(tensor).type == "cuda":
            raise NotSimulated("__cuda_array_interface__ hands the memory of a GPU to another library")
        raise AttributeError("__cuda_array_interface__")

    as_it_was = torch.Tensor.as_subclass

    def as_subclass(tensor: Tensor, cls: Any) -> Any:
        # torch 2.4 fails on what a dispatch mode has handed back.
        with torch._C._DisableTorchDispatch():
            return as_it_was(tensor, cls)

    patches.set(torch.Tensor, "as_subclass", as_subclass)
    patches.set(torch.Tensor, "device", property(device_of))
    patches.set(torch.Tensor, "is_cuda", property(lambda tensor: device_of(tensor).type == "cuda"))
    patches.set(torch.Tensor, "is_cpu", property(lambda tensor: device_of(tensor).type == "cpu"))
    patches.set(torch.Tensor, "get_device", get_device)
    patches.set(torch.Tensor, "__cuda_array_interface__", property(no_array_interface))


def patch_storages(patches: Patches, storages: Storages, resolve: Callable[[Any], torch.device]) -> None:
    """Storages answer likewise: checkpoints are written and read by way of these, so that torch does it all itself."""
    untyped: Any = torch.UntypedStorage
    raw_device = untyped.device
    raw_copy = untyped.copy_

    def device_of(storage: Any) -> torch.device:
        place = storages.place_of_storage(storage)
        if place is None:
            device: torch.device = raw_device.__get__(storage)
            return device
        return place if isinstance(place, torch.device) else CPU

    def copied(storage: Any, device: torch.device) -> Any:
        with torch._C._DisableTorchDispatch():
            result = raw_copy(untyped(storage.nbytes()), storage)
        storages.put_storage(result, device)
        return result

    def to(storage: Any, *, device: Any, non_blocking: bool = False) -> Any:
        target = resolve(device)
        if target.type not in ("cpu", "cuda"):
            return original_to(storage, device=target, non_blocking=non_blocking)
        return storage if target == device_of(storage) else copied(storage, target)

    def cuda(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
        return to(storage, device="cuda" if device is None else device)

    def from_buffer(*args: Any, **kwargs: Any) -> Any:
        # Beside a mode of our key torch makes a storage of a buffer without any memory.
        with _disable_current_modes():
            return raw_from_buffer(*args, **kwargs)

    raw_from_buffer = untyped.from_buffer
    original_to = untyped.to
    patches.set(untyped, "device", property(device_of))
    patches.set(untyped, "is_cuda", property(lambda storage: device_of(storage).type == "cuda"))
    patches.set(
        untyped, "get_device", lambda storage: -1 if device_of(storage).index is None else device_of(storage).index
    )
    patches.set(untyped, "from_buffer", staticmethod(from_buffer))
    patches.set(untyped, "to", to)
    patches.set(untyped, "cuda", cuda)
    patches.set(untyped, "cpu", lambda storage: to(storage, device=CPU))
    patches.set(untyped, "clone", lambda storage: copied(storage, device_of(storage)))
