"""Sketches as judges work with them: those of parts add up, and the signs can be had for any place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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


class PartLeft(NamedTuple):
    """By how much some tensors are what they were, as far as their sketches tell."""

    share: float
    error: float

    @property
    def is_nothing(self) -> bool:
        """Whether nothing of it is left, and something would show."""
        return self.error <= _ERROR and self.share <= _ERRORS * self.error


_ERROR, _ERRORS = 0.3, 2.0
"""A share that is known less well says nothing; and by how many times its error one that is none may be off."""


def share_of(pairs: Iterable[tuple[Numbers, Numbers]]) -> PartLeft | None:
    """The share of what tensors were in what they are, all of them together; None where sketches are of nothing."""
    each = [(first / size, now / size) for first, now in pairs if (size := float(np.linalg.norm(first))) > 0]
    if not each:
        return None
    was, now = (np.concatenate([one[turn] for one in each]) for turn in (0, 1))
    share = float(was @ now / (was @ was))
    error = float(np.linalg.norm(now) / np.linalg.norm(was) / np.sqrt(len(was)))
    return PartLeft(share, error) if np.isfinite(error) else None


def are_alike(one: Numbers, other: Numbers) -> bool:
    """Whether two tensors are the same but for rounding."""
    return bool(np.linalg.norm(one - other) <= ALIKE * max(np.linalg.norm(one), np.linalg.norm(other)))
