"""Sketches of tensors, made of the part that this rank has, where it lies: see :mod:`ddpcheck.evidence.sketches`.

Nothing is gathered, and nothing waited for. What is worked on at a time is small, so that a look in the midst of a
backward() needs next to no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch

from ddpcheck.evidence.sketches import COLUMNS, FOLD, NUMBERS, ROWS, folded
from ddpcheck.probes.devices.device_objects import forever
from ddpcheck.probes.digests.gpu_digests import GOLDEN, mix, signed

PORTION, ON_DEVICE = 1 << 18, 1 << 21
"""Elements that are worked on at a time: on the CPU those that its caches hold, on a device 16 MB of doubles."""
WIDEST = 1 << 16
"""Columns, and rows, of a portion."""
SMALL = 1 << 14
"""Elements up to which a tensor is added up in double precision."""
WIDE, TINY, KEPT = 1 << 14, 1 << 11, 64
"""The signs of no more columns than this are kept, nor those of all elements of a larger box; and of so many boxes."""

Shape = tuple[int, ...]


def of_box(part: torch.Tensor, whole: Shape, offset: Shape) -> torch.Tensor:
    """The sketch of a whole tensor's part that begins at this offset: NUMBERS doubles, on the part's device.

    ``part`` is strided, real and of floating point; ``whole`` is the shape of the whole tensor.
    """
    if part.numel() <= TINY:
        return _product(_kept(_all_signs, whole, tuple(part.shape), offset, part.device), part.reshape(-1, 1).double())[
            :, 0
        ]
    if len(whole) < 2:
        return of_run(part.reshape(-1), whole, offset[0])
    return _of_rows(part.flatten(1), offset[0], whole[1:], tuple(part.shape[1:]), tuple(offset[1:]))


_signs_of: dict[Any, torch.Tensor] = {}


def _kept(make: Callable[..., torch.Tensor], *of: Any) -> torch.Tensor:
    """Signs that are made once: models have few shapes. A device's memory is not given back in whatever moment."""
    found = _signs_of.get((make, of))
    if found is None:
        found = make(*of)
        if len(_signs_of) < KEPT:
            _signs_of[make, of] = forever(found)
    return found


def _all_signs(whole: Shape, sizes: Shape, offset: Shape, device: torch.device) -> torch.Tensor:
    """For each sum a row with the signs of all elements of a small box."""
    if len(whole) < 2:
        begin = offset[0] if offset else 0
        places = torch.arange(begin, begin + prod(sizes), device=device)
        return (_signs(places // FOLD + ROWS) * _signs(places % FOLD + COLUMNS)).double()
    rows = _signs(torch.arange(offset[0], offset[0] + sizes[0], device=device) + ROWS)
    columns = _column_signs(whole[1:], sizes[1:], offset[1:], 0, prod(sizes[1:]), device)
    return (rows[:, :, None] * columns[:, None]).flatten(1).double()


def of_run(part: torch.Tensor, whole: Shape, begin: int) -> torch.Tensor:
    """The sketch of a run of elements of the flattened whole, from this one on; ``part`` has one dimension."""
    width = max(1, folded(whole)[1])
    total = torch.zeros(NUMBERS, dtype=torch.float64, device=part.device)
    for start, end in _boxes(begin, begin + part.numel(), width):
        cut = part[start - begin : end - begin]
        column, size = start % width, min(width, end - start)
        total += _of_rows(cut.view(-1, size), start // width, (width,), (size,), (column,))
    return total


def of_sparse(part: torch.Tensor) -> torch.Tensor:
    """The sketch of a sparse tensor of which this rank has the whole, as a gradient of an embedding is."""
    indices, values = part._indices(), part._values()
    if part.sparse_dim() == 1 and part.dim() > 1:
        shape = tuple(part.shape[1:])
        return _of_rows(values.flatten(1), indices[0], shape, shape, (0,) * len(shape))
    return of_box(part.to_dense(), tuple(part.shape), (0,) * part.dim())


def _boxes(start: int, end: int, width: int) -> Iterator[tuple[int, int]]:
    """A run cut into at most three: the rest of a row, whole rows, the beginning of a row."""
    first, last = min(end, -(-start // width) * width), max(start, end // width * width)
    for begin, stop in ((start, first), (first, last), (last, end)) if first < last else ((start, first), (first, end)):
        if begin < stop:
            yield begin, stop


def _of_rows(part: torch.Tensor, rows: torch.Tensor | int, whole: Shape, sizes: Shape, offset: Shape) -> torch.Tensor:
    """Of a matrix with these rows of the whole, or those from this one on, and a box's columns of it."""
    height, width = part.shape
    kind = torch.float64 if part.numel() < SMALL or not _is_precise(part) else torch.float32
    most = PORTION if part.is_cpu else ON_DEVICE
    total = torch.zeros(NUMBERS, dtype=torch.float64, device=part.device)
    for top in range(0, height, WIDEST):
        some = part[top : top + WIDEST]
        of_rows = _signs(_places(rows, top, len(some), part.device) + ROWS).to(kind)
        for left in range(0, width, WIDEST):
            right = min(left + WIDEST, width)
            box = whole, sizes, offset, left, right, part.device
            columns = (_kept(_column_signs, *box) if right - left <= WIDE else _column_signs(*box)).to(kind)
            step = max(1, most // (right - left))
            for at in range(0, len(some), step):
                product = _product(of_rows[:, at : at + step], some[at : at + step, left:right].to(kind))
                total += (product * columns).sum(1, dtype=torch.float64)
    return total


def _places(rows: torch.Tensor | int, top: int, height: int, device: torch.device) -> torch.Tensor:
    if isinstance(rows, torch.Tensor):
        return rows[top : top + height]
    return torch.arange(rows + top, rows + top + height, device=device)


def _product(signs: torch.Tensor, portion: torch.Tensor) -> torch.Tensor:
    """Of two matrices; where a program allows deterministic algorithms alone, a device's library would refuse it."""
    if portion.is_cpu or not torch.are_deterministic_algorithms_enabled():
        return signs @ portion
    return torch.stack([(row[:, None] * portion).sum(0) for row in signs])


def _is_precise(part: torch.Tensor) -> bool:
    """Whether a product of matrices in single precision is one: a program may ask for less."""
    if part.dtype is torch.float64:
        return False
    try:
        return torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled(part.device.type)
    except (RuntimeError, TypeError):  # settings of two kinds are mixed; a device without autocast
        return False


def _column_signs(
    whole: Shape, sizes: Shape, offset: Shape, left: int, right: int, device: torch.device
) -> torch.Tensor:
    """The signs of some columns of a box, which are counted in the order of the box."""
    columns = torch.arange(left, right, device=device)
    if sizes[1:] == whole[1:]:  # the columns lie side by side in the whole, too
        return _signs(columns + offset[0] * prod(whole[1:]) + COLUMNS)
    places = torch.zeros_like(columns)
    for size, of, begin in zip(reversed(sizes), reversed(_strides(whole)), reversed(offset), strict=True):
        places += (columns % size + begin) * of
        columns //= size
    return _signs(places + COLUMNS)


def _strides(shape: Shape) -> Shape:
    return tuple(prod(shape[place + 1 :]) for place in range(len(shape)))


def _signs(places: torch.Tensor) -> torch.Tensor:
    """For each sum a row of ones with a sign."""
    hashed = places * signed(GOLDEN)
    mix(hashed)
    bits = hashed[None] >> torch.arange(NUMBERS, device=places.device)[:, None] & 1
    return bits.float() * 2 - 1
