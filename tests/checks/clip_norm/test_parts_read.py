"""Norms that are read of a rank's own part."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm.run import judge
from tests.judging.written import world


def read(value, number=0, what="norm"):
    return ev.PartRead, {"site": 7, "number": number, "what": what, "value": value, "ranks": (0, 1)}


def test_each_rank_reads_its_own():
    judged = judge(world([read(1.0), read(2.0, 1)], [read(3.0), read(2.5, 1)]))
    (found,) = judged.findings
    assert (found.severity, found.ranks, found.where.line, found.count) == ("warning", (0, 1), 7, 1)
    assert "1 on rank 0, 3 on rank 1" in found.found
    assert judged.checked == 0


def test_one_rank_logs():
    (found,) = judge(world([read(1.0, what="max")], [])).findings
    assert (found.ranks, found.subject) == ((0,), "a largest element of a DTensor")


@pytest.mark.parametrize("ranks", [
    ([read(2.0)], [read(2.0)]),
    ([read(1.0), (ev.PartsJoined, {"site": 7})], [read(3.0)]),  # the program brings them together itself
])  # fmt: skip
def test_where_it_is_the_whole(ranks):
    judged = judge(world(*ranks))
    assert (judged.findings, judged.checked) == ((), 0)
