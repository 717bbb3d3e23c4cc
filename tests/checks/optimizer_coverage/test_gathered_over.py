"""A flat buffer whose end no gather reaches."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.optimizer_coverage.run import judge
from tests.judging.written import world


def findings(*tails, names=("head.bias",), elements=(1,)):
    given = {"site": 8, "names": list(names), "elements": list(elements)}
    looks = [(ev.GatheredOver, {**given, "number": number, "tails": tail}) for number, tail in enumerate(tails)]
    return judge(world(looks, looks)).findings


def test_a_rest_that_no_rank_has():
    (found,) = findings(b"aaaa", b"aaaa", b"aaaa")
    assert (found.severity, found.ranks, found.subject, found.where.line) == ("warning", (0, 1), "head.bias", 8)
    assert "before its last 1 element that is trained" in found.found


@pytest.mark.parametrize("tails", [(b"aaaa", b"bbbb", b"cccc"), (b"aaaa", b"aaaa", b"bbbb"), (b"aaaa", b"aaaa")])
def test_what_is_written_by_other_means(tails):
    """Such as a gather for each of several buckets."""
    assert findings(*tails) == ()
