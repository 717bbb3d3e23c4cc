"""Two stages that begin with one table."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.tied_parameters.run import judge
from tests.judging.own_reductions import carried
from tests.judging.sharded_models import held, model, optimizer, stepped
from tests.judging.written import call, exchanged, world

KIND = "float32[8, 8]"
UNMOVED = (ev.MovedBetween, {"optimizer": 0, "number": 1, "moved": []})


def judged(
    first="t", last="t", after=(("b", "c"),) * 2, declared=True, sends=8, more=(UNMOVED,), names=("embed", "head"), **of
):
    """Two stages, each with a table and a layer; what the tables are after each step."""
    ranks = []
    for rank, (name, value) in enumerate(zip(names, (first, last), strict=True)):
        tensors = [held(name, value, kind=KIND, **of), held("layer", f"layer{rank}", kind=KIND)]
        stage = {"how": "PipelineStage", "site": 3, "stage": rank, "stages": 2, "pipeline": (0, 1)}
        records = [(ev.Parallelised, stage)] if declared else []
        sent = [call(n, 5, op="send" if n % 2 else "recv", group="world", peer=1 - rank) for n in range(sends)]
        steps = [stepped(12, n, "gg", [values[rank], f"l{n}{rank}"]) for n, values in enumerate(after)]
        ranks.append([*records, model(9, *tensors), optimizer(10, {name: None, "layer": None}), *sent, *steps, *more])
    return judge(world(*ranks))


@pytest.mark.parametrize("declared", [True, False])
def test_copies_that_diverge(declared):
    (found,) = judged(declared=declared).findings
    assert (found.severity, found.ranks, found.subject, found.step) == ("warning", (0, 1), "head", 0)
    assert found.where.line == 12


@pytest.mark.parametrize("given", [
    {"last": "u"},  # drawn each for itself
    {"after": (("b", "b"),) * 2},  # the gradients are added up
    {"after": (("b", "c"), ("d", "d"))},  # brought together now and then
    {"declared": False, "sends": 1},  # no pipeline: something was sent once
    {"names": ("table", "table")},  # copies of one model that send each other something
    {"filled": True},
    {"more": [UNMOVED, exchanged(0, carried(0, of="parameter"))]},  # averaged after each step
    {"more": [UNMOVED, exchanged(0, carried(0))]},
    {"more": []},  # nobody has looked whether they are
    {"more": [(ev.MovedBetween, {"optimizer": 0, "number": 1, "moved": [0]})]},  # averaged by way of a copy
])  # fmt: skip
def test_where_nothing_is_wrong(given):
    assert judged(**given).findings == ()
