"""Digests of tensors, at the speed of memory: equal state is recognised without moving it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
import xxhash

from ddpcheck.probes.digests import gpu_digests, readable_memory


class Unreadable(ValueError):
    """A tensor that has no memory which could be looked at."""


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor's elements, without a copy where it is contiguous on the CPU; of a DTensor, this rank's.

    Raises Unreadable for a tensor whose elements are not in memory, or not in a form that is known.
    """
    plain: torch.Tensor | None = (
        tensor.detach() if readable_memory.memory(tensor) is not None else readable_memory.local(tensor)
    )
    lies = None if plain is None else readable_memory.memory(plain := plain.cpu())
    if lies is None:
        raise Unreadable(f"the elements of a {type(tensor).__name__} on {tensor.device} cannot be looked at")
    address, size = lies
    if size == 0:
        return memoryview(b"")
    buffer = (ctypes.c_char * size).from_address(address)
    buffer._tensor = plain  # type: ignore[attr-defined]  # it owns the memory
    return memoryview(buffer).cast("B")


def digest(tensor: torch.Tensor) -> str:
    """A 128-bit digest of the elements; dtype and shape are not part of it."""
    return digest_each([tensor])[0]


def bytes_digest(tensor: torch.Tensor) -> str:
    """The digest of the elements' bytes on the CPU: the same wherever the tensor is."""
    return xxhash.xxh3_128_hexdigest(tensor_bytes(tensor))


def digest_each(tensors: Sequence[torch.Tensor]) -> list[str]:
    """The digests of many tensors: xxh3 on the CPU, and for those on GPUs one computed there, all at once.

    So the same elements have one digest on the CPU and another one on GPUs.
    """
    on_gpus = [place for place, tensor in enumerate(tensors) if tensor.device.type == "cuda"]
    told = dict(zip(on_gpus, gpu_digests.digests([tensors[place] for place in on_gpus]), strict=True))
    return [
        known.hex() if (known := told.get(place)) is not None else xxhash.xxh3_128_hexdigest(tensor_bytes(tensor))
        for place, tensor in enumerate(tensors)
    ]


def digest_of_parts(parts: list[bytes]) -> str:
    """One digest for a sequence of byte strings; the boundaries count."""
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.hexdigest()
