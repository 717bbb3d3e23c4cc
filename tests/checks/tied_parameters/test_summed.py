"""Tables at other places of two stages' optimizers, whose gradients are added up before every step."""

from __future__ import annotations

import msgspec
import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.tied_parameters.run import judge
from tests.judging.own_reductions import carried
from tests.judging.sharded_models import optimizer, stepped
from tests.judging.written import exchanged, world

FIRST = {"embed": None, "layer": None}
LAST = {"layer": None, "head": None}


def judged(
    after=(("b", "c"),) * 3, gradients=(("g", "g"),) * 3, begun=("t", "u"), last=LAST, where=1, beside=(), **more
):
    """The first stage has the table in the first place; what the tables are after each step, and their gradients."""
    ranks = []
    for rank, (held, place) in enumerate(((FIRST, 0), (last, where))):
        steps = []
        for number, (values, its) in enumerate(zip(after, gradients, strict=True)):
            tables, grads = ([own[rank], f"l{rank}"] for own in (values, its))
            steps.append(stepped(12, number, grads[:: 1 - 2 * place], tables[:: 1 - 2 * place]))
        values = [begun[rank], f"l{rank}"][:: 1 - 2 * place]
        ranks.append([optimizer(10, held, values), exchanged(0, carried(place, **more), *beside), *steps])
    return judge(world(*ranks))


def test_tables_that_began_apart():
    (found,) = judged().findings
    assert (found.severity, found.ranks, found.subject, found.step) == ("warning", (0, 1), "head", 0)
    assert found.where.line == 12
    assert "differed when training began" in found.cause
    assert "drawn or loaded" in found.cause


def test_tables_that_are_stepped_otherwise():
    (found,) = judged(begun=("t", "t")).findings
    assert "stepped otherwise" in found.cause


def test_tables_that_stay_one():
    found = judged(after=(("b", "b"),) * 3, begun=("t", "t"))
    assert (found.checked, found.findings) == (3, ())


@pytest.mark.parametrize("given", [
    {"gradients": (("g", "h"),) * 3},  # each keeps a gradient of its own
    {"after": (("b", "c"), ("d", "d"), ("e", "f"))},  # brought together now and then
    {"after": (("b", "c"),), "gradients": (("g", "g"),)},  # too early to say
    {"last": FIRST, "where": 0},  # copies at one place are for parameter-sync
    {"alike": False},  # each rank has a part of the sum
    {"flat": True},  # told by a size alone
    {"inside": True},
    {"beside": [msgspec.structs.replace(carried(1), offset=4)]},  # a bucket, whose order may be the fault
    {"group": "elsewhere", "of": "parameter"},
])  # fmt: skip
def test_where_nothing_is_wrong(given):
    assert judged(**given).findings == ()


def test_a_shard_is_no_copy():
    """What is declared to lie otherwise is not compared."""
    layout = ev.Layout(ground="DTensor", placements=("S0",))
    assert judged(last={"layer": None, "head": layout}).findings == ()
