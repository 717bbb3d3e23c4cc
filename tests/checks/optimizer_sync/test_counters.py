"""Counts of steps in an optimizer's groups of parameters."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_sync.run import judge
from tests.judging.own_reductions import BOTH, optimizer, stepped
from tests.judging.written import exchanged, world


def judged(*counts):
    """Rank by rank, what it had counted on entry to the second step, the third and so on."""
    ranks = []
    for each in counts:
        records = [optimizer()]
        for number in range(len(each) + 1):
            records += [exchanged(number, *BOTH), stepped("gg", number=number)]
            if number and each[number - 1]:
                grown = {"0 step": each[number - 1]}
                records.append((ev.GroupCounts, {"optimizer": 0, "number": number, "grown": grown}))
        ranks.append(records)
    return judge(world(*ranks)).findings


def test_a_rank_that_counts_its_own_work_alone():
    (found,) = judged((1, 2, 3, 4), (0, 1, 1, 1))
    assert (found.severity, found.ranks, found.where.line, found.step) == ("warning", (1,), 9, 0)
    assert found.found == "4 on rank 0; 1 on rank 1 after 4 steps"


@pytest.mark.parametrize("given", [
    ((1, 2, 3, 4), (1, 2, 3, 4)),
    ((2, 4, 6, 8), (0, 1, 1, 1)),  # no count of steps on any rank
    ((1, 2, 3, 4), (0, 2, 3, 4)),  # it has caught up
    ((0, 0, 0, 0), (0, 0, 0, 0)),
])  # fmt: skip
def test_other_counts(given):
    assert judged(*given) == ()
