"""Two parts of one loss: one has a factor that undoes DDP's mean, and the other may lack it."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.missing_factor import judge
from tests.judging.written import world

TOKENS = (4, 6)
ALL = sum(TOKENS)


def records(rank, window, first, second, tokens):
    """A backward() over two parts, each with these factors; DDP takes the mean over two ranks."""
    terms = []
    for scales in (first, second):
        weight = 1.0
        for one in scales:
            weight *= one
        terms.append(ev.Term(by="Mul", elements=tokens[rank], weight=weight, kind="elements", scales=scales))
    one = ev.Weighed(site=20, terms=terms, value=rank + 10.0 * window)
    numbers = [1.0 + rank, 2.0, -1.0, 0.5, 3.0, 1.0 + window]
    each = [ev.Sums(model=0, path="w", kind="float32[6]", numbers=numbers, over=[0, 1], divisor=2)]
    looks = [(ev.GradientSums, {"window": window, "optimizer": of, "each": each}) for of in (None, 0)]
    return [*looks, (ev.StepWeights, {"optimizer": 0, "number": window, "backwards": [one], "window": window})]


def judged(first, second, tokens=TOKENS):
    model = (ev.Model, {"model": 0, "kind": "Net", "site": 9, "held": []})
    return judge(world(*[[model, *[r for w in (0, 1) for r in records(rank, w, first, second, tokens)]]
                         for rank in (0, 1)]))  # fmt: skip


def test_a_part_that_lacks_the_factor():
    (found,) = judged([2.0, 1 / ALL], [0.3, 1 / ALL])
    assert (found.severity, found.where.line, found.count) == ("warning", 20, 2)
    assert "the world size" in found.cause


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([2.0, 1 / ALL], [0.3, 2.0, 1 / ALL]),  # both have it
        ([2.0, 2.0, 1 / ALL], [0.3, 2.0, 1 / ALL]),  # a coefficient of the first: it does not add up to 1
        ([2.0, 1 / ALL], [0.3, 1 / 7]),  # another divisor
        ([2.0, 1 / ALL], [0.3, 0.7, 1 / ALL]),  # two factors of its own
        ([1.5, 1 / ALL], [0.3, 1 / ALL]),  # no size of anything
        ([], []),  # not known
    ],
)
def test_parts_that_are_scaled_otherwise(first, second):
    assert judged(first, second) == []


def test_equally_many_elements_show_nothing():
    assert judged([2.0, 1 / 10], [0.3, 1 / 10], tokens=(5, 5)) == []
