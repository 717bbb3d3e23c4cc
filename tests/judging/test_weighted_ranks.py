"""By what each rank's gradients were multiplied before they were added up."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.weighted_ranks import factors
from tests.judging.written import world

LEFT = [{"a": [1.0, 2.0, 3.0], "b": [4.0, -1.0, 2.0]}, {"a": [2.0, -3.0, 1.0], "b": [0.5, 5.0, 7.0]}]


def sums(number, of, optimizer=None, over=()):
    each = [
        ev.Sums(model=0, path=path, kind="float32[4]", numbers=numbers, over=list(over)) for path, numbers in of.items()
    ]
    return ev.GradientSums, {"window": number, "optimizer": optimizer, "each": each}


def found(by, left=LEFT, disturbed=0.0, **more):
    stepped = {
        path: [sum(f * its[path][n] for f, its in zip(by, left, strict=True)) + disturbed * n for n in range(3)]
        for path in left[0]
    }
    ranks = [[sums(0, one, **more), sums(0, stepped, optimizer=0, **more)] for one in left]
    return factors(world(*ranks), [0, 1], 0)


@pytest.mark.parametrize("by", [(0.5, 0.5), (0.25, 0.75), (3.0, 0.1)])
def test_one_number_for_each_rank(by):
    assert found(by) == pytest.approx(list(by))


def test_what_no_such_numbers_make():
    """Something else was done; the ranks left the same; what a wrapper has reduced is its own business."""
    assert found((0.25, 0.75), disturbed=0.5) is None
    assert found((0.25, 0.75), left=[LEFT[0], LEFT[0]]) is None
    assert found((0.25, 0.75), over=(0, 1)) is None
    assert found((1.0, -0.5)) is None


@pytest.mark.parametrize("noise", [1e-17, -1e-17])
def test_rounding_of_either_sign_is_no_weight(noise):
    """The rank whose gradient is not in the sum gets exactly 0."""
    assert found((1.0, noise)) == [pytest.approx(1.0), 0.0]


def test_no_weights_where_each_rank_steps_on_its_own_gradient():
    """Nothing was added up, though rank 0's factors would be 1 and 0."""
    each = [[sums(0, own), sums(0, own, optimizer=0)] for own in LEFT]
    assert factors(world(*each), [0, 1], 0) is None
