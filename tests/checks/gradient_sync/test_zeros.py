"""Zeros are equal on all ranks whatever these do: nothing is held by them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS, packed
from ddpcheck.judging import zero_digests
from tests.judging.judged import run_judged
from tests.judging.training_steps import digests, optimizer, stepped
from tests.judging.written import step, world, wrapped

CHECKS = "gradient-sync", "parameter-sync", "optimizer-sync"
ZEROS = sorted(zero_digests.of_zeros(4))


MOVED = digests("q")


def judged(gradient, after=MOVED, rates=(0.1,)):
    """How often each check has compared one step of a wrapped parameter, the same on two ranks."""
    given = {"number": 0, "gradients": gradient, "parameters": after, "rates": list(rates)}
    rank = [wrapped(3), optimizer(0, 4, "a"), step(9, **given)]
    found = run_judged(world(rank, rank), *CHECKS)
    assert not any(one.findings for one in found)
    return {one.check: one.checked for one in found}


def test_a_step_on_a_gradient():
    assert judged(digests("g")) == dict.fromkeys(CHECKS, 1)


@pytest.mark.parametrize("gradient", [*ZEROS, ev.ABSENT, ev.UNSEEN])
def test_a_step_on_no_gradient(gradient):
    """Zeros, on the CPU and on a GPU; none at all; one that was not looked at."""
    assert judged(gradient)["gradient-sync"] == 0


@pytest.mark.parametrize("after", [digests("a"), *ZEROS])
def test_a_parameter_that_never_moves(after):
    """It is as it began, or zero."""
    assert judged(digests("g"), after)["parameter-sync"] == 0


def test_a_rate_of_zero():
    assert judged(digests("g"), rates=[0.0])["optimizer-sync"] == 0


@pytest.mark.parametrize(("number", "compared"), [(1.0, 2), (math.nan, 0), (math.inf, 0)])
def test_gradients_that_are_not_finite(number, compared):
    """They are equal bits on all ranks, and so is what steps make of them from then on."""
    fields = {
        "at_moment": "G",
        "optimizer": 0,
        "number": 0,
        "backwards": 1,
        "since": (0, 0),
        "pieces": [0],
        "places": [0],
    }
    look = (
        ev.Values,
        {
            **fields,
            "pieces": [0],
            "places": [0],
            "digests": digests("g"),
            "sketches": packed([np.full(NUMBERS, number)]),
        },
    )
    steps = [stepped(9, gradient, after, number=n) for n, (gradient, after) in enumerate(("gp", "hq"))]
    rank = [wrapped(3), optimizer(0, 4, "a"), look, *steps]
    found = {one.check: one.checked for one in run_judged(world(rank, rank), *CHECKS)}
    assert (found["gradient-sync"], found["parameter-sync"]) == (compared, compared)


def test_the_reason_is_what_was_not_seen():
    rank = [wrapped(3), optimizer(0, 4, "a"), step(9, gradients=ZEROS[0], parameters=digests("a"), rates=[0.0])]
    reasons = {one.check: one.skipped_because for one in run_judged(world(rank, rank), *CHECKS)}
    assert "saw no step on which all ranks have gradients" in reasons["gradient-sync"]
    assert "saw no step change a parameter" in reasons["parameter-sync"]
    assert "saw no learning rate" in reasons["optimizer-sync"]
