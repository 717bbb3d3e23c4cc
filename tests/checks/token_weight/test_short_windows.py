"""The last window of a pass, with fewer micro-batches: divided by its own number, scaled up, or neither."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.short_windows import judge
from tests.judging.written import world

BODY = "def main():\n    (loss(x) / temperature).backward()\n"


def judged(*windows, batches=10):
    """Two ranks with windows of so many micro-batches, their divisor, and the factor of their gradients."""
    site = {"id": 120, "file": "train.py", "line": 2, "function": "main", "text": "backward()"}
    records = [(ev.Site, {**site, "caller": 0, "through": (), "first": 1, "body": BODY})]
    for number, (backwards, divisor, factor) in enumerate(windows):
        fields = {"optimizer": 0, "number": number, "site": 9, "backwards": backwards, "forwards": backwards}
        more = {"backward_site": 120, "between": [], "divisor": divisor, "factor": factor}
        records.append((ev.Window, {**fields, **more}))
    ended = {"loader": 0, "number": 0, "batches": batches, "samples": batches, "exhausted": True, "order": ""}
    records.append((ev.PassEnded, {**ended, "backwards": batches}))
    return judge(world(records, records))


WHOLE, SHORT = (4, 4.0, 1.0), (2, 4.0, 1.0)


def test_divided_as_if_it_were_whole():
    """A warning at the line of the backward()."""
    (finding,) = judged(WHOLE, WHOLE, SHORT)
    assert (finding.severity, finding.ranks, finding.step, finding.count) == ("warning", (0, 1), 2, 1)
    assert finding.where.line == 2
    assert "the 2 micro-batches that are left over" in finding.expected
    assert "takes 2/4 of the mean" in finding.found


@pytest.mark.parametrize(("windows", "more"), [
    ([WHOLE, WHOLE, (2, 2.0, 1.0)], {}),
    ([WHOLE, WHOLE, (2, 4.0, 2.0)], {}),
    ([WHOLE, WHOLE, (2, 4.0, None)], {}),
    ([WHOLE, WHOLE, WHOLE], {}),
    ([WHOLE, SHORT], {}),
    ([WHOLE, WHOLE, SHORT], {"batches": 11}),
    ([WHOLE, WHOLE, SHORT, (3, 4.0, 1.0)], {}),
], ids=["own", "scaled-up", "unknown", "whole", "once", "elsewhere", "left-out"])  # fmt: skip
def test_what_may_be_right(windows, more):
    """Whoever has thought of it; windows that are short elsewhere."""
    assert judged(*windows, **more) == []
