"""What is read from a tensor's kind as it was written down, such as ``float32[3, 4]``."""

from __future__ import annotations

import math
import re
from functools import lru_cache

_SIZES = re.compile(r"\[([\d, ]*)\]")
_FLAT = re.compile(r" x (\d+)")


def known_shape(kind: str) -> tuple[int, ...] | None:
    """The shape in a text such as ``float32[3, 4], SUM``; None if there is none."""
    sizes = _SIZES.search(kind)
    return tuple(int(one) for one in sizes[1].split(",") if one.strip()) if sizes is not None else None


@lru_cache(maxsize=4096)
def elements_in(detail: str) -> int:
    """The elements of a collective's tensor, in ``float32[3, 4]`` or ``float32 x 12``; zero if there is neither."""
    flat = _FLAT.search(detail)
    shape = known_shape(detail)
    return int(flat[1]) if flat is not None else math.prod(shape) if shape is not None else 0


def shape_of(kind: str) -> tuple[int, ...]:
    """The shape in ``float32[3, 4]``; if there is none, that of a single element."""
    return known_shape(kind) or ()


def dtype_of(kind: str) -> str:
    """The dtype in ``float32[3, 4]``."""
    return kind.partition("[")[0]
