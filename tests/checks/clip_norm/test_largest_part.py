"""Clips by the largest of the norms that the ranks have of their parts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm.run import judge
from tests.checks.clip_norm.test_run import SHARD, WHOLE, norm
from tests.judging.sharded_models import optimizer, stepped
from tests.judging.written import world

NORMS = [(3.0, 4.0), (6.0, 1.0), (5.0, 5.0)]


@pytest.mark.parametrize(("layout", "number"), [(SHARD, 1), (WHOLE, 0)])
def test_the_largest_norm_of_a_part(layout, number):
    """However the ranks have told each other: the factor times it is the bound at each step."""
    by_largest = [0.5 / max(each) for each in NORMS]
    judged = judge(by_largest_of(by_largest, layout))
    assert len(judged.findings) == number
    for finding in judged.findings:
        assert (finding.severity, finding.ranks, finding.where.line, finding.count) == ("error", (0, 1), 9, 3)
        assert "a clip by 4, the largest norm that a rank has of its part; that of the whole is 5" in finding.found
    assert judge(by_largest_of([0.5 / math.hypot(*each) for each in NORMS], layout)).findings == ()
    assert judge(by_largest_of([*by_largest[:2], 1.0], layout)).findings == ()


def by_largest_of(factors: list[float], layout: ev.Layout) -> Any:
    """Two ranks that nobody has seen sum anything up: their gradients at the end of backward(), and the factors."""
    return world(
        *(
            [optimizer(3, {"flat": layout})]
            + [norm(n, [e[rank] ** 2], f, "backward") for n, (f, e) in enumerate(zip(factors, NORMS, strict=True))]
            + [stepped(9, 0, ["g"])]
            for rank in range(2)
        )
    )
