"""Shards that are written to between steps, on some ranks alone."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.parameter_sync.run import judge
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import world

NAMES = ("a", "b")


def judged(*moved, placements=("S0",), local=(16,)):
    """Rank by rank, the shards that have changed before the second step; None where nobody has looked."""
    ranks = []
    for rank, places in enumerate(moved):
        lies = layout(rank, (len(moved),), placements, local=local if rank else (16,))
        records = [mesh((len(moved),)), optimizer(10, dict.fromkeys(NAMES, lies))]
        records += [stepped(12, 0, "gg"), stepped(12, 1, "gg")]
        if places is not None:
            records.append((ev.MovedBetween, {"optimizer": 0, "number": 1, "moved": places}))
        ranks.append(records)
    return judge(world(*ranks)).findings


def test_swapped_back_on_one_rank():
    (found,) = judged([], [0, 1])
    assert (found.severity, found.ranks, found.where.line, found.step) == ("warning", (1,), 12, 1)
    assert "none of rank 0" in found.found


@pytest.mark.parametrize("given", [
    ([], []),
    ([0, 1], [0, 1]),
    ([], [1]),  # some rows of one tensor
    ([], None),
])  # fmt: skip
def test_what_may_be_meant(given):
    assert judged(*given) == ()


def test_ranks_without_a_part():
    """There is nothing to write to."""
    assert judged([0, 1], [], local=(0,)) == ()


def test_copies():
    """These are compared by their values."""
    assert judged([], [0, 1], placements=("R",)) == ()
