"""What a sketch is: a few sums of a tensor's elements under signs that follow from their places in the whole alone.

``s[k]`` is the sum over rows ``i`` and columns ``j`` of ``a[k, i] * t[i, j] * b[k, j]``. Rows are places in the first
dimension, columns those in all others, flattened; a tensor of fewer than two dimensions is folded into rows of FOLD.
The signs ``a`` and ``b`` are bits of a hash of the place, not of a name. So sketches of parts add up to that of the
whole, however it was cut, and a sum or a multiple of tensors has the sum or the multiple of their sketches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

VERSION = 1
"""Of the signs: sketches of two versions cannot be compared."""

NUMBERS = 8
"""Sums of a sketch."""

FOLD = 1024
"""Columns of the matrix that a tensor of fewer than two dimensions is folded into."""

ROWS, COLUMNS = 0, 1 << 40
"""What is added to a place before it is hashed, so that rows and columns have signs of their own."""


def folded(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a whole tensor of this shape."""
    elements = 1
    for size in shape:
        elements *= size
    if len(shape) < 2:
        return -(-elements // FOLD), FOLD
    return shape[0], elements // shape[0] if shape[0] else 0


def packed(rows: Iterable[Sequence[float] | None], width: int = NUMBERS) -> bytes:
    """How sketches, or rows of another width, stand in a record; NaN for what there is none of."""
    nothing = (float("nan"),) * width
    return b"".join(struct.pack(f"<{width}d", *(nothing if row is None else row)) for row in rows)
