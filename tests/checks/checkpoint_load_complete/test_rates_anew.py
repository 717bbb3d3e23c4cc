"""Learning rates after moments were loaded."""

from __future__ import annotations

import pytest

from ddpcheck.checks.checkpoint_load_complete.run import judge
from tests.judging.own_reductions import optimizer, stepped
from tests.judging.written import loaded, save, world

WARM = (0.1, 0.2, 0.3, 0.4)


def ran(before=WARM, after=(0.5, 0.2, 0.3), saved=True, early=False, given="optimizer"):
    """Two ranks that save, load into an optimizer that is built anew, and go on."""
    file = [save("c.pt", 10, keys=["model"])] if saved else []
    records = [
        *(file if early else ()),
        optimizer(0),
        *(stepped("gh", number=number, rates=[rate]) for number, rate in enumerate(before)),
        *(() if early else file),
        loaded(given, 20, optimizer=1, kind="SGD"),
        optimizer(1),
        *(stepped("gh", optimizer=1, number=number, rates=[rate]) for number, rate in enumerate(after)),
    ]
    return [one for one in judge(world(*[records] * 2)).findings if one.subject == "the learning rates"]


@pytest.mark.parametrize("first", [0.1, 0.5])
def test_the_warm_up_once_more(first):
    """The optimizer's groups may have the right rate, until the scheduler sets its own."""
    (found,) = ran(after=(first, 0.2, 0.3))
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0, 1), 20)
    assert "0.2, 0.3" in found.found


@pytest.mark.parametrize("more", [
    {"after": (0.5, 0.6, 0.7)},
    {"before": (0.1, 0.1, 0.1, 0.1), "after": (0.1, 0.1, 0.1)},  # always the same
    {"before": (0.1, 0.2, 0.3, 0.1)},  # they come back by themselves
    {"after": (0.1, 0.2)},  # too early to say
    {"saved": False},  # tried, and taken back: no checkpoint
    {"early": True},  # the beginning is what was saved
    {"before": (0.1, 0.2)},
    {"given": "module"},  # trained anew from these weights
])  # fmt: skip
def test_what_goes_on_or_is_meant(more):
    assert ran(**more) == []
