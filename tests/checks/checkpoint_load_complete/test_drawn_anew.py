"""Loaded weights that are drawn anew before anything has used them."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_load_complete.drawn_anew import judge
from tests.judging.written import loaded, step, world


def drawn(line=20):
    return ev.DrawnAnew, {"kind": "Net", "weight": "0.weight", "of": 2, "loaded": 6, "site": line}


def of(*records):
    return list(judge(world(list(records), [step(30)])))


def test_nothing_is_left_of_a_load():
    (found,) = of(loaded("module", 6), drawn(), step(30))
    # A warning: whether a copy was made of what was loaded, nobody knows.
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0,), 20)
    assert found.proof[0][1].line == 6


def test_all_of_several_loads():
    assert [f.count for f in of(loaded("module", 6), drawn(), loaded("module", 6), drawn(), step(30))] == [2]


def test_what_is_left_of_another_load():
    """Layer by layer, and a new head."""
    assert of(loaded("module", 6), loaded("module", 6), drawn(), step(30)) == []


def test_a_training_that_does_not_go_on():
    assert of(step(30), loaded("module", 6), drawn()) == []
