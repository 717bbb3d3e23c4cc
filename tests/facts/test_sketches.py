"""Signs that never change, and sketches that add up whatever a tensor is cut into."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ddpcheck.evidence.sketches import COLUMNS, NUMBERS, ROWS, VERSION, folded, packed
from ddpcheck.facts import sketches

KNOWN = {
    ROWS: {
        0: "--------",
        1: "++++-+-+",
        2: "--+-++++",
        3: "++++--+-",
        4: "--++-+++",
        1023: "+-++-+-+",
        1024: "+---+++-",
        65535: "+++++--+",
        65536: "+++++-+-",
        1000000: "+---++++",
    },
    COLUMNS: {
        0: "+++-+++-",
        1: "-+--+++-",
        2: "---+--++",
        3: "-+--+-+-",
        4: "+-+-+---",
        1023: "--+-+-++",
        1024: "-++-+-++",
        65535: "+++-+-++",
        65536: "+++--+--",
        1000000: "+-+-+--+",
    },
}
"""Of version 1, by place: recordings that were made with other signs cannot be compared."""


@pytest.mark.parametrize("of", KNOWN)
def test_the_signs_are_those_of_their_version(of):
    assert VERSION == 1
    places = np.array(list(KNOWN[of]))
    found = sketches.signs(places + of)
    assert ["".join("+" if one > 0 else "-" for one in column) for column in found.T] == list(KNOWN[of].values())


def test_signs_are_as_good_as_drawn():
    """None prefers a side, nor its neighbour, nor another sum's."""
    many = sketches.signs(np.arange(100_000))
    assert np.abs(many.mean(1)).max() < 0.01
    assert np.abs((many[:, 1:] * many[:, :-1]).mean(1)).max() < 0.02
    assert np.abs(np.corrcoef(many) - np.eye(NUMBERS)).max() < 0.02


def test_a_small_tensor_has_the_sketch_that_one_can_work_out():
    """Each number is a sum with the signs of row and column."""
    whole = np.array([[1.0, 10.0], [100.0, 1000.0]])
    a, b = sketches.signs(np.arange(2) + ROWS), sketches.signs(np.arange(2) + COLUMNS)
    for k in range(NUMBERS):
        by_hand = sum(a[k, i] * whole[i, j] * b[k, j] for i in range(2) for j in range(2))
        assert sketches.of(whole)[k] == by_hand


@pytest.mark.parametrize(
    ("shape", "matrix"),
    [
        ((), (1, 1024)),
        ((5,), (1, 1024)),
        ((1025,), (2, 1024)),
        ((3, 4, 5), (3, 20)),
        ((0, 4), (0, 0)),
        ((4, 0), (4, 0)),
    ],
)
def test_every_shape_has_rows_and_columns(shape, matrix):
    assert folded(shape) == matrix


@given(arrays(float, (4, 3), elements=st.integers(-9, 9)), arrays(float, (4, 3), elements=st.integers(-9, 9)))
def test_a_sketch_is_linear(one, other):
    assert np.array_equal(sketches.of(one + 3 * other), sketches.of(one) + 3 * sketches.of(other))


def test_what_is_packed_is_unpacked():
    row = [float(n) for n in range(NUMBERS)]
    found = sketches.unpacked(packed([row, None, row]))
    assert found.shape == (3, NUMBERS)
    assert found[0].tolist() == found[2].tolist() == row
    assert np.isnan(found[1]).all()
