"""What owners send: each time, or at some steps only."""

from __future__ import annotations

from ddpcheck.checks.parameter_sync.run import judge
from tests.judging.owners import both
from tests.judging.written import world


def test_all_arrives():
    judged = judge(world(*both()))
    assert (judged.checked, judged.findings) == (6, ())


def test_what_does_not_arrive_once():
    (found,) = judge(world(*both(on_first="vggi"))).findings
    assert (found.severity, found.ranks, found.subject, found.step, found.count) == ("warning", (0,), "b", 2, 1)
    assert found.where.line == 9
