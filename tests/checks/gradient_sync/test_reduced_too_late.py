"""Gradients that are reduced after the step."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.gradient_sync.run import judge
from tests.judging.own_reductions import optimizer, stepped
from tests.judging.written import world


def judged(*numbers):
    late = [(ev.LateReduction, {"optimizer": 0, "number": n, "site": 21, "places": [1]}) for n in numbers]
    found = judge(world(*[[optimizer(), stepped("gg"), *late]] * 2)).findings
    return [one for one in found if "before the step" in one.expected]


def test_at_every_step():
    (found,) = judged(0, 1, 2)
    assert (found.severity, found.ranks, found.where.line, found.subject) == ("warning", (0, 1), 21, "b")
    assert [site.line for _, site in found.proof] == [9]


def test_once():
    assert judged(3) == []
