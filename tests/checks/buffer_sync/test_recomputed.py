"""The judge of buffer-sync, over buffers that a recomputed forward changes once more."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.buffer_sync.run import judge
from tests.judging.written import ended, world


def again(*buffers, number=0):
    return ev.Recomputed, {"site": 40, "number": number, "drew": [], "apart": [], "buffers": list(buffers)}


def test_a_buffer_that_is_changed_twice():
    """A warning, since a program may count by halves; each line has one."""
    verdict = judge(world([again("a.load"), again("b.load", number=1), ended()], [again("a.load"), ended()]))
    (finding,) = verdict.findings
    assert (finding.severity, finding.ranks, finding.where.line, finding.count) == ("warning", (0, 1), 40, 3)
    assert "2 buffers" in finding.found
    assert verdict.checked


def test_buffers_that_are_left_alone():
    """Nothing is said, and nothing is held by that alone."""
    verdict = judge(world([again(), ended()], [again(), ended()]))
    assert (verdict.checked, verdict.findings) == (0, ())
