"""Prints of tensors that add up: those of its parts, however it is cut, make that of the whole.

Each is a sum over elements, in whole numbers modulo 2 ** 64 over their bits: it
is exact, and any order gives the same. One sum weighs each element by its
place in the whole tensor, the other does not: where the second is equal and the
first is not, the same elements lie in another order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from math import prod

import torch

from ddpcheck.evidence.saved_state import PRINT
from ddpcheck.probes.digests import readable_memory

FEW = 1 << 12
"""Elements of a whole tensor that are looked at, in full rows: the first ones, wherever they are."""
MOST = 1 << 20
"""Elements of one row up to which it is looked at."""

NONE = bytes(PRINT)
"""In the place of a print: nobody has looked."""

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def of_part(part: torch.Tensor, shape: Sequence[int], offset: Sequence[int]) -> bytes:
    """The print of a part that lies at an offset in a tensor of this shape; NONE for one that cannot be read."""
    plain = readable_memory.in_a_row(part) if part.is_cpu else None
    word = _WORDS.get(part.element_size())
    if plain is None or word is None or len(shape) != plain.dim() or not _fits(plain, shape, offset):
        return NONE
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        if not plain.dim():
            plain, shape, offset = plain.reshape(1), (1,), (0,)
        row = prod(shape[1:])
        if row > MOST:
            return NONE
        rows = max(1, FEW // max(1, row)) - offset[0]
        if rows <= 0 or not plain.numel():
            return _packed(0, 0)
        plain = plain[:rows]
        values = _mixed(plain.view(word).to(torch.int64, copy=True))
        weights = _weights(tuple(plain.shape), tuple(shape), tuple(offset))
        loose = int(values.sum())
        return _packed(int(values.mul_(weights).sum()), loose)


@lru_cache(maxsize=128)
def _weights(size: tuple[int, ...], shape: tuple[int, ...], offset: tuple[int, ...]) -> torch.Tensor:
    """Of each element of a part, by its place in the whole: odd numbers, so that none makes elements alike."""
    places = torch.zeros((), dtype=torch.int64, device="cpu")
    for dim, length in enumerate(size):
        along = torch.arange(offset[dim], offset[dim] + length, dtype=torch.int64, device="cpu") * prod(
            shape[dim + 1 :]
        )
        places = places + along.reshape([-1 if d == dim else 1 for d in range(len(size))])
    return _mixed(places).bitwise_or_(1)


def _fits(part: torch.Tensor, shape: Sequence[int], offset: Sequence[int]) -> bool:
    return all(at + size <= whole for at, size, whole in zip(offset, part.shape, shape, strict=True))


def _mixed(words: torch.Tensor) -> torch.Tensor:
    """The same numbers, scattered over 64 bits in their place: a small difference makes a large one."""
    words.add_(0x51_7C_C1_B7).mul_(-0x61C8864680B583EB)
    words.bitwise_xor_(words >> 29).mul_(-0x40A7B892E31B1A47)
    return words.bitwise_xor_(words >> 32)


def _packed(placed: int, loose: int) -> bytes:
    return struct.pack("<qq", placed, loose)
