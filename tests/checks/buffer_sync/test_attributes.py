"""The judge of a wrapped model's plain attributes: numbers that data have made, and those that tell a rank's place."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.buffer_sync.run import judge
from tests.judging.written import ended, world, wrapped


def told(*values):
    """What is said of a model with one attribute, rank by rank."""
    ranks = [
        [wrapped(5), (ev.Attributes, {"wrapper": 0, "values": {"scale": value}, "site": 30}), ended()]
        for value in values
    ]
    return judge(world(*ranks)).findings


@pytest.mark.parametrize("values", [("0.5", "0.7"), ("3", "5"), ("0", "7", "9"), ("0", "none")])
def test_numbers_that_differ_are_a_warning(values):
    """They may have been made of data, and the cause says that they need not."""
    (finding,) = told(*values)
    assert finding.severity == "advisory"
    assert finding.cause.startswith("it was computed from each rank's own data, or from its rank")


@pytest.mark.parametrize("values", [("0", "16"), ("0", "16", "32"), ("0", "-1", "-2"), ("4", "4")])
def test_the_place_of_a_rank_may_be_an_attribute(values):
    """Where each rank's part of a sequence begins: so many times its rank."""
    assert told(*values) == ()
