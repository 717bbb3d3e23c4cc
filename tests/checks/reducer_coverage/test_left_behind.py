"""The judge of reducer-coverage, over weights that never move while the rest of their module does."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.left_behind import AT_LEAST, judge
from tests.judging.loaded import digest
from tests.judging.written import ended, step, world

LINE = 60
NAMES = ["net.0.weight", "net.0.bias"]


PART = ev.Layout(ground="FSDP", placements=("F",), holders=(0,), among=(0, 1))


def rank(still=("net.0.weight",), absent=(), changed=(), steps=AT_LEAST, names=NAMES, layout=PART):
    """A rank whose optimizer finds the same gradient at each step for what is still, and new ones for the rest."""

    def digests(turn, *moving):
        return b"".join(
            ev.ABSENT if name in absent else digest(f"{name} {turn if name in moving else 'still'}") for name in names
        )

    own = [
        ev.Parameter(name=name, kind="float32 (8,)", wrapper=None, reduced=False, layout=layout, path=name)
        for name in names
    ]
    moving = [name for name in names if name not in still]
    given = {"optimizer": 0, "kind": "SGD", "site": LINE, "parameters": own, "sharded": False, "values": b""}
    made = [
        step(LINE, number=turn, gradients=digests(turn, *moving), parameters=digests(turn, *moving, *changed))
        for turn in range(steps)
    ]
    return [(ev.Optimizer, given), *made, ended()]


def said(*ranks):
    return judge(world(*ranks))


def test_a_weight_beside_a_bias_that_trains():
    """It is told at the step."""
    (finding,) = said(rank(), rank())
    assert (finding.severity, finding.subject, finding.ranks, finding.where.line) == ("warning", NAMES[0], (0, 1), LINE)
    assert finding.found.startswith("1 parameter never to be changed, in 6 steps that were looked at")


def test_shards_of_it():
    """A rank may hold nothing of the one, or nothing of the other."""
    assert len(said(rank(absent=NAMES[1:]), rank(absent=NAMES[:1]))) == 1


@pytest.mark.parametrize(
    "more",
    [{"still": ()}, {"still": NAMES}, {"absent": NAMES[:1]}, {"changed": NAMES[:1]}, {"steps": AT_LEAST - 1},
     {"still": ["a.weight"], "names": ["a.weight", "b.bias"]}, {"layout": None}],
    ids=["all train", "none does", "no gradient at all", "decay changes it", "few steps", "another module", "whole"],
)  # fmt: skip
def test_what_may_be_meant(more):
    """Nothing is said of it."""
    assert said(rank(**more), rank(**more)) == []


def test_one_rank_that_trains_it():
    """What it does is then in the weights."""
    assert said(rank(), rank(still=())) == []
