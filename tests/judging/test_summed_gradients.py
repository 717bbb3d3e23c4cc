"""Over which ranks a gradient was added up, and by what it was multiplied, as far as its sums show."""

from __future__ import annotations

import math

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.run import judge
from ddpcheck.checks.token_weight.whole_weight import whole
from ddpcheck.judging.summed_gradients import brought
from tests.judging.written import call, world

PAIR = (0, 1)


def sums(of, numbers):
    each = [ev.Sums(model=0, path="w", kind="float32[6]", numbers=numbers)]
    return ev.GradientSums, {"window": 0, "optimizer": of, "each": each}


def found(left, stepped):
    """The ranks added up and the factor, on each rank; an all-reduce over all of them was seen."""
    model = (ev.Model, {"model": 0, "kind": "Net", "site": 9, "held": []})
    reduces = call(0, 10, "all_reduce")
    ranks = [[model, sums(None, one), reduces, sums(0, other)] for one, other in zip(left, stepped, strict=True)]
    its = world(*ranks)
    judge(its)
    return [(one.rank.rank, one.over, round(one.factor, 6)) for one in brought(its)]


def test_a_mean_over_the_ranks():
    assert found([[1.0, 2.0], [3.0, -1.0]], [[2.0, 0.5]] * 2) == [(0, PAIR, 0.5), (1, PAIR, 0.5)]


def test_each_ranks_own():
    assert found([[1.0, 2.0], [3.0, -1.0]], [[1.0, 2.0], [6.0, -2.0]]) == [(0, (0,), 1.0), (1, (1,), 2.0)]


def test_a_rank_without_a_gradient_adds_nothing():
    """Of the other rank, its own gradient alone would explain its step as well."""
    assert found([[1.0, 2.0], None], [[0.5, 1.0], [0.5, 1.0]]) == [(1, PAIR, 0.5)]


@pytest.mark.parametrize(
    "left",
    [
        [[1.0, 2.0], [1.0, 2.0]],  # reduced within backward(), or one batch on both
        [[1.0, 2.0], [1.0, 2.0 + 1e-5]],  # the same, rounded otherwise
    ],
)
def test_gradients_that_are_the_same_show_nothing(left):
    assert found(left, [[1.0, 2.0]] * 2) == []


def test_of_three_alike_and_one_of_its_own_only_that_one_is_told():
    left = [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [2.0, 1.0]]
    assert found(left, left) == [(3, (3,), 1.0)]


def test_gradients_of_one_length_need_not_be_alike():
    """Their lengths put them side by side; the numbers themselves decide."""
    left = [[3.0, 4.0], [4.0, 3.0], [5.0, 0.0]]
    assert found(left, left) == [(0, (0,), 1.0), (1, (1,), 1.0), (2, (2,), 1.0)]


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 1e308])
def test_a_training_that_diverges_shows_nothing(number):
    left = [[number, -number], [-number, number]]
    assert found(left, [[0.0, number], [number, 1.0]]) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2.0, 2), (0.25, 4), (1.0, None), (1.5, None), (0.0, None), (math.inf, None), (math.nan, None), (5e-324, None)],
)
def test_a_whole_number_or_none(value, expected):
    assert whole(value) == expected
