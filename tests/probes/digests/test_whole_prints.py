"""Prints of tensors that add up over their parts, however these are cut."""

from __future__ import annotations

import struct

import pytest
import torch

from ddpcheck.probes.digests.whole_prints import FEW, NONE, of_part

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64]


def added(*prints):
    sums = [struct.unpack("<qq", one) for one in prints]
    return tuple(sum(each) % (1 << 64) for each in zip(*sums, strict=True))


def cut(whole, dim, sizes):
    """The prints of pieces along a dimension."""
    found, start = [], 0
    for piece in whole.split(sizes, dim):
        offset = [0] * whole.dim()
        offset[dim] = start
        found.append(of_part(piece.contiguous(), whole.shape, offset))
        start += piece.shape[dim]
    return found


def drawn(dtype, *shape):
    return torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("dim", "sizes"), [(0, [3, 4]), (0, [7, 0]), (1, [1, 2, 2])])
def test_parts_make_the_whole(dtype, dim, sizes):
    whole = drawn(dtype, 7, 5)
    assert added(*cut(whole, dim, sizes)) == added(of_part(whole, whole.shape, (0, 0)))


def test_rows_that_change_places():
    """The elements are the same, and their places are not."""
    whole = drawn(torch.float32, 6, 4)
    before, after = (added(of_part(one, one.shape, (0, 0))) for one in (whole, whole.flip(0).contiguous()))
    assert before[0] != after[0]
    assert before[1] == after[1]


@pytest.mark.parametrize("dim", [0, 1])
def test_large_tensors_are_looked_at_from_their_beginning(dim):
    """The same rows, whoever holds them; what is behind them is not looked at."""
    whole = drawn(torch.float32, 3 * FEW // 8, 8)
    printed = added(of_part(whole, whole.shape, (0, 0)))
    half = whole.shape[dim] // 2
    assert added(*cut(whole, dim, [half, whole.shape[dim] - half])) == printed
    other = whole.clone()
    other[-1] += 1
    assert added(of_part(other, other.shape, (0, 0))) == printed
    other[0, 0] += 1
    assert added(of_part(other, other.shape, (0, 0))) != printed


@pytest.mark.parametrize(
    ("part", "shape", "offset"),
    [
        (torch.ones(4, 2).t(), (2, 4), (0, 0)),
        (torch.ones(2), (4, 2), (0, 0)),
        (torch.ones(2, 2), (3, 2), (2, 0)),
        (torch.ones(2, device="meta"), (2,), (0,)),
    ],
)
def test_what_is_not_looked_at(part, shape, offset):
    """Elements that do not lie in a row, parts that do not fit, no elements at all."""
    assert of_part(part, shape, offset) == NONE


def test_a_number_and_nothing():
    assert of_part(torch.tensor(3.0), (), ()) != NONE
    assert added(of_part(torch.ones(0, 3), (6, 3), (6, 0))) == (0, 0)
