"""What is left of a clip when the step begins."""

from __future__ import annotations

import pytest

from ddpcheck.checks.clip_norm.run import judge
from tests.checks.clip_norm.test_run import norm
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import world


def sharded(factors, largest=1.0, bounds=(None, None), also=()):
    """Two ranks with a shard each, whose norm is 10 together, and a clip before each step."""
    ranks = []
    for rank, square in enumerate((36.0, 64.0)):
        records = [mesh((2,), ("dp",)), optimizer(3, {"w": layout(rank, (2,), ("S0",))})]
        for number, factor in enumerate(factors):
            bound = bounds[number] if bounds[number] is not None else largest
            records += [norm(number, [square], factor, largest=bound), stepped(9, number, [f"g{number}"])]
        ranks.append([*records, *also])
    return world(*ranks)


def test_divided_after_the_clip():
    judged = judge(sharded([0.1 / 27, 0.1 / 31]))
    (finding,) = judged.findings
    assert (finding.severity, finding.ranks, finding.where.line, finding.count) == ("warning", (0, 1), 7, 2)
    assert "a norm of 10 clipped to 1" in finding.found


@pytest.mark.parametrize(
    ("factors", "more"),
    [
        ([0.1, 0.1], {}),  # the clip alone
        ([0.1, 0.1 / 27], {}),  # once in a while
        ([None, None], {}),  # each by another number
        ([0.1 * 65536 / 65536 * 100 / 65536, 0.1 * 100 / 65536], {"largest": 100.0}),  # a bound times what divides
        ([0.2 / 27, 0.3 / 31], {"bounds": (2.0, 3.0)}),
        ([0.1 / 27, 0.1 / 31], {"largest": 20.0}),  # nothing was clipped
        ([0.1 / 27, 0.1 / 31], {"also": [stepped(9, 0, ["h"], optimizer=1)]}),  # a clip over those of both
    ],
)
def test_what_is_left_alone_or_unknown(factors, more):
    assert judge(sharded(factors, **more)).findings == ()
