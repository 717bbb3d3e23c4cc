"""Windows whose losses are divided by the micro-batches: and gradients once more, or not."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.run import judge
from tests.checks.token_weight.test_whole_weight import gradients
from tests.judging.written import call, world


def judged(number, weight, factor, elements=5, kind="mean", windows=2, ranks=2, over=(0, 1), **others):
    """Ranks with windows of so many micro-batches, each a mean or sum whose elements have this weight."""

    def of(rank):
        records = [(ev.Model, {"model": 0, "kind": "Net", "site": 9, "held": []})]
        for window in range(windows):
            terms = [ev.Term(by="NllLoss", elements=elements, weight=weight, kind=kind)]
            each = [
                ev.Weighed(site=20, terms=terms, value=rank + 10.0 * window + 0.1 * micro) for micro in range(number)
            ]
            mine = over if rank in over else (rank,)
            records += [
                call(1, 30, op="all_reduce"),
                *gradients(rank, window, w=(mine, factor), **{path: (mine, one) for path, one in others.items()}),
            ]
            records.append((ev.StepWeights, {"optimizer": 0, "number": window, "backwards": each, "window": window}))
        return records

    return judge(world(*map(of, range(ranks))))


def test_both_are_divided():
    """Two micro-batches, halves of a mean each; the average over the ranks, and a half of that."""
    (found,) = judged(2, 1 / 10, 1 / 4).findings
    assert (found.severity, found.where.line, found.count, found.ranks) == ("warning", 20, 2, (0, 1))
    assert found.found.startswith("1/2 of that")
    assert "the 2 micro-batches" in found.cause


def test_a_schedule_that_divides_by_itself():
    """One rank alone has the loss, and its gradients go nowhere."""
    (found,) = judged(4, 1 / 20, 1 / 4, ranks=1, over=(0,)).findings
    assert found.found.startswith("1/4 of that")


@pytest.mark.parametrize(
    "given",
    [
        (2, 1 / 10, 1 / 2),  # divided in the loss, averaged over two ranks
        (2, 1 / 5, 1 / 4),  # divided afterwards alone
        (4, 1 / 20, 1 / 4),  # four micro-batches, and half of it: not their number
        (1, 1 / 5, 1 / 4),  # no window at all
    ],
)
def test_one_of_both(given):
    assert judged(*given).findings == ()


def test_a_sum_may_be_divided_by_anything():
    assert judged(2, 1 / 10, 1 / 4, kind="elements").findings == ()
    assert judged(2, 1 / 10, 1 / 4, windows=1).findings == ()


def test_a_part_that_counts_less_on_purpose():
    """A table whose gradients are halved: it is not the window."""
    assert judged(2, 1 / 10, 1 / 4, head=1 / 2).findings == ()
    assert len(judged(2, 1 / 10, 1 / 4, head=1 / 4).findings) == 1
