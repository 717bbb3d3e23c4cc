"""Windows of sums, whose gradients are divided by the elements of one micro-batch, or of all."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.part_of_window import judge
from tests.checks.token_weight.test_whole_weight import gradients
from tests.judging.written import call, world

EACH = [[(3, 5, 4), (6, 2, 7)], [(4, 4, 9), (5, 8, 3)], [(8, 3, 6), (2, 6, 8)]]
"""Window by window and rank by rank: the elements of three micro-batches."""


def judged(divisor, each=EACH, kind="sum", lines=1):
    """Two ranks whose gradients are added up, and divided by some number of each window."""

    def of(rank):
        records = [(ev.Model, {"model": 0, "kind": "Net", "site": 9, "held": []})]
        for window, its in enumerate(each):
            terms = [ev.Term(by="NllLoss", elements=number, weight=1.0, kind=kind) for number in its[rank]]
            backwards = [
                ev.Weighed(site=20 + micro % lines, terms=[term], value=1.0 + rank) for micro, term in enumerate(terms)
            ]
            records += [call(1, 30, op="all_reduce"), *gradients(rank, window, w=((0, 1), 1 / divisor(its)))]
            weights = {"optimizer": 0, "number": window, "backwards": backwards, "window": window}
            records.append((ev.StepWeights, weights))
        return records

    return judge(world(of(0), of(1)))


def of_micro_batch(place):
    return lambda its: sum(one[place] for one in its)


@pytest.mark.parametrize(("place", "name"), [(2, "the last micro-batch"), (0, "micro-batch 1 of 3")])
def test_divided_by_one_micro_batch(place, name):
    """A warning: at every step it is the same one."""
    (finding,) = judged(of_micro_batch(place))
    assert (finding.severity, finding.ranks, finding.step, finding.count) == ("warning", (0, 1), 0, 3)
    assert finding.where.line == 20
    assert "divided by the 27 elements that all of them have" in finding.expected
    assert f"those of {name} alone" in finding.found


def test_what_may_be_right():
    """All of them; a constant; means; micro-batches that are equally large; too few windows; losses of two kinds."""
    last = of_micro_batch(2)
    assert judged(lambda its: sum(map(sum, its))) == []
    assert judged(lambda its: 64) == []
    assert judged(last, kind="mean") == []
    assert judged(last, each=[[(4, 4, 4)] * 2] * 3) == []
    assert judged(last, each=EACH[:2]) == []
    assert judged(of_micro_batch(0), each=[[its[:2] for its in one] for one in EACH], lines=2) == []
