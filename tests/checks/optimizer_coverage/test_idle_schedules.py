"""Schedulers of optimizers that another one has replaced."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_coverage.run import judge
from tests.judging.sharded_models import optimizer, stepped
from tests.judging.written import world

HELD = {"weight": None}
VAIN = (ev.ScheduledInVain, {"kind": "LambdaLR", "optimizer": 0, "of": "SGD", "first": 0.1, "last": 0.4, "site": 8})


def ran(rates=(0.1, 0.1, 0.1, 0.1), also=(), kind="SGD", number=1):
    """Two ranks of which another optimizer steps."""
    steps = [stepped(7, n, [f"g{n}"], optimizer=number, rates=[rate]) for n, rate in enumerate(rates)]
    return world(*[[optimizer(5, HELD, optimizer=number, kind=kind), *steps, VAIN, *also]] * 2)


def test_the_scheduler_of_the_one_before():
    (finding,) = judge(ran()).findings
    assert (finding.severity, finding.ranks, finding.where.line) == ("warning", (0, 1), 8)
    assert "from 0.1 to 0.4" in finding.found


@pytest.mark.parametrize("more", [
    {"rates": (0.1, 0.2, 0.3, 0.4)},  # copied from one to the other
    {"rates": (0.1, 0.1)},  # too early to say
    {"rates": (0.1, ev.UNREAD, 0.1, 0.1)},
    {"also": [stepped(7, 0, ["h"], optimizer=0)]},  # it begins later
    {"kind": "AdamW"},  # a part of its own
    {"number": 0},
])  # fmt: skip
def test_what_may_be_meant(more):
    assert judge(ran(**more)).findings == ()
