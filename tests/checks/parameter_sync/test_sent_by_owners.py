"""What owners send: each time, or at some steps only."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.parameter_sync.run import judge
from tests.judging.owners import both, ran
from tests.judging.written import world


def test_all_arrives():
    judged = judge(world(*both()))
    assert (judged.checked, judged.of, judged.findings) == (4, 4, ())


def held_on_rank_1(*seen, more=()):
    """Rank 0 has two parameters, and makes ``cd``, ``ef``, ``gh`` of them; what rank 1 holds when its steps begin."""
    first = [*ran("ab", "x", ["cd", "ef", "gh", "ij"], ["v"] * 4), *more]
    return judge(world(first, ran("x", "ab", ["k", "l", "m", "n"], list(seen)))).findings


def test_what_does_not_arrive_once():
    (found,) = held_on_rank_1("vv", "cd", "ed", "gh")
    assert (found.severity, found.ranks, found.subject, found.step, found.count) == ("warning", (1,), "b", 2, 1)
    assert found.where.line == 9


def test_what_is_bounded_on_all_ranks():
    """It is nothing that was there before; or it is, and the owner's is written to as well."""
    assert held_on_rank_1("vv", "cd", "ez", "gh") == ()
    assert held_on_rank_1("vv", "cd", "ed", "gh", more=[moved(2, 1)]) == ()
    assert held_on_rank_1("vv", "cd", "ed", "gh", more=[moved(2, 0), moved(1, 1)]) != ()


def moved(number, place):
    return ev.MovedBetween, {"optimizer": 0, "number": number, "moved": [place]}


@pytest.mark.parametrize("seen", [("vv", "cd", "ef", "gh"), ("vv", "cd", "cd", "gh"), ("vv", "vv", "vv", "vv")])
def test_what_arrives_or_is_sent_now_and_then(seen):
    assert held_on_rank_1(*seen) == ()


def test_what_an_owner_never_sends():
    """Others of its parameters arrive on both ranks, and this one on none: it is stale there."""
    first = ran("ab", "xy", ["cd", "ef", "gh", "ij"], ["vv"] * 4)
    others = [ran("uv", "ab", ["vv"] * 4, ["vb", "cb", "eb", "gb"]) for _ in range(2)]
    (found,) = judge(world(first, *others)).findings
    assert (found.severity, found.rule, found.ranks) == ("warning", "different-parameters", (1, 2))
