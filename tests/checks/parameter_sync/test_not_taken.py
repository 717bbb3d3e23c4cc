"""Parameters that go into an exchange, and that no rank writes to when it is over."""

from __future__ import annotations

import pytest
from ddpcheck.checks.parameter_sync.not_taken import judge
from ddpcheck.judging.brought_together import never_together

from ddpcheck import evidence as ev
from ddpcheck.facts import parallelism_seen
from ddpcheck.judging.step_alignment import optimizers
from tests.judging.own_reductions import carried, digests, optimizer, stepped
from tests.judging.test_brought_together import exchanged_before
from tests.judging.written import exchanged, world

ALL = (carried(0, "parameter", flat=True), carried(1, "parameter", flat=True))


def rank(own, values="vv", taken=(), what=ALL, moved=(), models=1, number=7):
    """Before steps 2, 4 and 6 all parameters are exchanged; a rank's own are what the step before has left."""
    records = [optimizer(values=values)]
    for place in range(models):
        held = [ev.Held(name=name, kind="float32[4]", digest=digests("v")) for name in "ab"]
        records.append((ev.Model, {"model": place, "kind": "Net", "site": 2, "held": held, "ties": []}))
    for n in range(number):
        if n and n % 2 == 0:
            records.append(exchanged_before(n, "mm" if n in taken else own * 2))
        records.append(exchanged(n, *(what if n and n % 2 == 0 else ())))
        records.append(stepped("gh", own * 2, number=n))
        records.append((ev.MovedBetween, {"optimizer": 0, "number": n + 1, "moved": list(moved)}))
    return records


def found(values=("vv", "vv"), **more):
    over = world(*(rank("pq"[n], values[n], **more) for n in range(2)))
    return judge(over)[1]


def test_an_average_that_nobody_takes():
    """Seen at three exchanges; they are not called the same."""
    over = world(rank("p"), rank("q"))
    times, (one,) = judge(over)
    assert times == 3
    assert (one.severity, one.ranks, one.step, one.where.line, one.count) == ("warning", (0, 1), 2, 20, 3)
    assert "as its step before had left them" in one.found
    assert never_together(over, optimizers(over)[0]) == {0, 1}
    told = parallelism_seen.paragraph(over)
    assert "made the same" not in told
    assert "2 parameters exchanged by the program itself" in told


@pytest.mark.parametrize("more", [
    {"taken": (2, 4, 6)},
    {"taken": (4,)},
    {"values": ("vv", "xv")},
    {"what": ALL[:1]},
    {"what": ()},
    {"moved": (1,)},
    {"models": 2},
    {"number": 5},
], ids=["taken", "once", "began-apart", "in-part", "other-tensors", "later", "in-another-model", "twice"])  # fmt: skip
def test_what_may_be_meant(more):
    """Averages that are taken, then or later, or that are for something else."""
    assert found(**more) == []
