"""Sketches as judges work with them: those of parts add up, and the signs can be had for any place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpcheck.evidence.sketches import COLUMNS, NUMBERS, ROWS, folded

Numbers = NDArray[np.float64]

ALIKE = 1e-4
"""How far apart sketches of one tensor may be that was computed twice, over their size."""

_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def signs(places: NDArray[np.int64]) -> Numbers:
    """For each sum of a sketch a row with the signs of these places; ROWS or COLUMNS was added to them."""
    hashed = places.astype(np.uint64) * _GOLDEN
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * factor
    hashed ^= hashed >> np.uint64(31)
    bits = hashed[None] >> np.arange(NUMBERS, dtype=np.uint64)[:, None] & np.uint64(1)
    found: Numbers = bits.astype(np.float64) * 2 - 1
    return found


def of(whole: NDArray[np.float64]) -> Numbers:
    """The sketch of a whole tensor."""
    rows, columns = folded(whole.shape)
    flat = np.zeros(rows * columns)
    flat[: whole.size] = whole.ravel()
    matrix = flat.reshape(rows, columns)
    found: Numbers = ((signs(np.arange(rows) + ROWS) @ matrix) * signs(np.arange(columns) + COLUMNS)).sum(1)
    return found


def unpacked(data: bytes) -> Numbers:
    """The sketches of some tensors as a record has them, one row each."""
    return np.frombuffer(data, dtype="<f8").reshape(-1, NUMBERS)


def are_alike(one: Numbers, other: Numbers) -> bool:
    """Whether two tensors are the same but for rounding."""
    return bool(np.linalg.norm(one - other) <= ALIKE * max(np.linalg.norm(one), np.linalg.norm(other)))
