"""Digests of zeros: equal on all ranks whatever these do, so that nothing is compared by comparing them.

Known by the number of bytes alone, as looks at the CPU's memory and those at a
GPU's make them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

import xxhash

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.tensor_kinds import dtype_of, shape_of

WINDOW = 16 * 1024
"""Bytes of a larger tensor that a look in part goes over."""
ROW = 4 * 1024
"""Bytes that a GPU adds up at first."""

_CHUNK = bytes(1 << 20)
_ALL = (1 << 64) - 1
_PLACE = 0x9E3779B97F4A7C15


def covers(
    tensors: Sequence[ev.Parameter | ev.Held | None], digests: Sequence[bytes], places: Iterable[int] | None = None
) -> bool:
    """Whether the ranks' digests compare something at some of these places: elements, and not all of them zeros.

    All places by default; a tensor of which only the digest is known is None.
    """
    places = range(len(tensors)) if places is None else places
    return len(digests) > 1 and any(
        nothing_of(tensors[place]).isdisjoint(step_alignment.at(one, place) for one in digests) for place in places
    )


def nothing_of(tensor: ev.Parameter | ev.Held | None) -> frozenset[bytes]:
    """The digests in the place of a tensor that stand for nothing to compare."""
    if tensor is None:
        return _nothing("", ())
    return _nothing(tensor.kind, tensor.layout.local if tensor.layout is not None else ())


@lru_cache(maxsize=1 << 16)
def _nothing(kind: str, local: tuple[int, ...]) -> frozenset[bytes]:
    bits = re.search(r"\d+", dtype_of(kind))
    size = math.prod(local or shape_of(kind)) * max(8, int(bits[0]) if bits else 8) // 8 if kind else 0
    known = (of_zeros(one) for one in {0, size, min(size, WINDOW)})
    return frozenset({b"", ev.ABSENT, ev.UNSEEN}).union(*known)


@lru_cache(maxsize=1 << 16)
def of_zeros(size: int) -> frozenset[bytes]:
    """The digests of so many bytes, all zero: as the CPU makes it, and as a GPU does."""
    on_cpu = xxhash.xxh3_64()
    for begin in range(0, size, len(_CHUNK)):
        on_cpu.update(_CHUNK[: size - begin])
    on_gpu = _mixed((_of_rows(-(-size // ROW)) + (size + 1) * _PLACE) & _ALL)
    return frozenset({on_cpu.digest(), on_gpu.to_bytes(ev.WIDTH, "little")})


_rows = [0]
"""What a GPU makes of so many rows of zeros."""


def _of_rows(count: int) -> int:
    each = (_mixed(_mixed(place * _PLACE & _ALL)) for place in range(len(_rows), count + 1))
    _rows[-1:] = accumulate(each, initial=_rows[-1])
    return _rows[count]


def _mixed(value: int) -> int:
    """The finaliser of splitmix64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = ((value ^ (value >> shift)) * factor) & _ALL
    return value ^ (value >> 31)
