"""Digests of tensors, at the speed of memory: equal state is recognised without moving it."""

from __future__ import annotations

import ctypes

import torch
import xxhash


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor's elements, without a copy where it is contiguous on the CPU."""
    plain = tensor.detach()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
    size = plain.numel() * plain.element_size()
    if size == 0:
        return memoryview(b"")
    buffer = (ctypes.c_char * size).from_address(plain.data_ptr())
    buffer._tensor = plain  # type: ignore[attr-defined]  # it owns the memory
    return memoryview(buffer).cast("B")


def digest(tensor: torch.Tensor) -> str:
    """A 128-bit digest (xxh3) of the elements; dtype and shape are not part of it."""
    return xxhash.xxh3_128_hexdigest(tensor_bytes(tensor))


def digest_of_parts(parts: list[bytes]) -> str:
    """One digest for a sequence of byte strings; the boundaries count."""
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.hexdigest()
