"""Loads that the first step undoes."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_load_complete.run import judge
from tests.judging.written import loaded, step, world


def of(*records):
    return judge(world(*[list(records)] * 2)).findings


def test_masters_that_win():
    given = {"kind": "Net", "weight": "0.weight", "of": 2, "loaded": 6, "site": 30}
    (found,) = of(loaded("module", 6), step(30), (ev.TakenBack, given))
    assert (found.severity, found.ranks, found.where.line) == ("warning", (0, 1), 6)
    assert "the 2 matrices of the Net" in found.found
    assert found.proof[0][1].line == 30


def test_copies_that_were_gathered_for_a_while():
    given = {"kind": "Net", "weight": "0.weight", "of": 1, "loaded": 6, "site": 30, "unreached": True}
    (found,) = of(loaded("module", 6), step(30), (ev.TakenBack, given))
    assert (found.severity, found.where.line) == ("warning", 6)
    assert "as they were cut before the load" in found.found
    assert "writeback" in found.advice


def test_a_load_that_lasts():
    assert of(loaded("module", 6), step(30)) == ()
