"""What is said of ranks that do not begin with the same model."""

from __future__ import annotations

from ddpcheck.checks.initial_broadcast import conformance as initial_broadcast
from tests.judging.trained import micro, only, step, stepped, trace, trained

BATCHES = [0, 1], [2, 3]
ONE = stepped(*BATCHES)


def test_all_ranks_begin_alike():
    judged = initial_broadcast.judge(trained("plain", ONE, ONE, ONE))
    assert (judged.checked, judged.findings) == (1, ())


def test_one_rank_begins_with_its_own():
    other = trace(micro([0, 1], parameters="q"), step())
    finding = only(initial_broadcast.judge(trained("plain", ONE, ONE, other)).findings)
    assert finding.ranks == (2,)
    assert "in the first forward of rank 2" in finding.found


def test_no_forward_is_no_verdict():
    assert initial_broadcast.judge(trained("plain", ONE, trace())).checked == 0
