"""Plain parameters beside sharded ones that each rank trains for itself: a fault, or each rank's own part."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.run import judge
from tests.judging.loaded import loader, through
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import ended, world

BOTH = (ev.Parallelised, {"how": "fully_shard", "site": 3, "ranks": (0, 1)})


def findings(dealt=True, ground="beside", values=("ab", "cb"), after=("xy", "zw"), gradients=("gh", "ij")):
    """Two ranks; ``b`` lies on both, whose first values, gradients, and values after each step are these."""
    ranks = []
    for number in range(2):
        parts = {
            "a": layout(number, (2,), ("S0",)),
            "b": ev.Layout(ground=ground, shape=(64,), mesh=0, local=(64,)),
        }
        steps = [stepped(20, turn, gradients[number], after[number]) for turn in range(2)]
        read = [loader(rank=number), *through(range(8 * number, 8 * number + 8))] if dealt else []
        ranks.append([mesh((2,), ("dp",)), BOTH, optimizer(5, parts, values[number]), *read, *steps, ended()])
    return [one for one in judge(world(*ranks)).findings if one.subject == "b"]


def test_what_was_forgotten_when_the_model_was_sharded():
    """It began alike on ranks that one dataset is dealt out to."""
    (finding,) = findings()
    assert (finding.severity, finding.ranks, finding.where.line) == ("error", (0, 1), 20)
    assert finding.found.startswith("1 plain parameter beside sharded ones")


@pytest.mark.parametrize(
    "more",
    [{"dealt": False}, {"values": ("ab", "cd")}, {"ground": "ignored"}],
    ids=["data of its own", "drawn apart", "ignored"],
)
def test_what_each_rank_may_be_meant_to_own(more):
    """Such as the head of a task."""
    (finding,) = findings(**more)
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    "more", [{"gradients": ("gh", "ih")}, {"after": ("xy", "zy")}], ids=["before the step", "within the step"]
)
def test_what_the_program_brings_together(more):
    """By whatever means: it comes out the same."""
    assert findings(**more) == []
