"""Owners that step on the gradient of their own batch alone."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.run import judge
from tests.judging.owners import both
from tests.judging.written import call, world

LEFT = {"a": ([1.0, 2.0], [3.0, -1.0]), "b": ([5.0, 1.0], [-2.0, 4.0])}
"""What backward() leaves of each, on rank 0 and rank 1."""


def sums(window, name, numbers, optimizer=None):
    each = [ev.Sums(model=0, path=name, kind="float32[4]", numbers=list(numbers))]
    return ev.GradientSums, {"window": window, "optimizer": optimizer, "each": each}


def findings(stepped_on, windows=3, joint=(), **more):
    """Each owner steps on what ``stepped_on`` makes of its own and the other's gradient."""
    ranks = both(**more)
    for rank, name in enumerate("ab"):
        own, other = LEFT[name][rank], LEFT[name][1 - rank]
        for window in range(windows):
            left = [sums(window, path, LEFT[path][rank]) for path in "ab"]
            numbers = [stepped_on(*pair) for pair in zip(own, other, strict=True)]
            ranks[rank] += [*left, call(window, 8, "all_reduce"), sums(window, name, numbers, optimizer=0)]
        given = {"optimizer": 0, "number": 0, "how": "backward", "site": 8, "moment": 0, "factor": 1.0}
        ranks[rank].append((ev.Norm, {**given, "norms": ev.packed([1.0]), "joint": list(joint)}))
    return [one for one in judge(world(*ranks)).findings if "step and send to all" in one.found]


def test_the_reduction_is_missing():
    (found,) = findings(lambda own, _: own)
    assert (found.severity, found.ranks, found.subject, found.where.line) == ("warning", (0, 1), "a", 4)
    assert "2 parameters" in found.found


@pytest.mark.parametrize("more", [
    {"stepped_on": lambda own, other: (own + other) / 2},
    {"stepped_on": lambda own, _: own, "windows": 2},  # too early to say
    {"stepped_on": lambda own, _: own, "joint": ["world"]},  # reduced by a hook, before backward() was over
    {"stepped_on": lambda own, _: own, "on_first": "vvvv"},  # a learner, which sends to an actor
    {"stepped_on": lambda own, _: own, "on_first": "vvvv", "on_second": "vvvv"},  # a part of the model for each rank
])  # fmt: skip
def test_what_is_reduced_or_meant(more):
    assert findings(**more) == []
