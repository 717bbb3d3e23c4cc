"""Gradients that DDP has reduced, and that the program adds up once more."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage import run as coverage
from tests.judging.own_reductions import carried, digests, optimizer, stepped
from tests.judging.sharded_models import layout, mesh
from tests.judging.sharded_models import optimizer as sharded
from tests.judging.sharded_models import stepped as sharded_step
from tests.judging.written import call, exchanged, world, wrapped

SUM = "float32 x 4 sum"


def rank(
    entered="xy", after="gh", again=(True, True), detail=SUM, own=None, parameters="pp", backwards=1, built=None,
    wrapper=None, **usage,
):  # fmt: skip
    """Two steps before which the gradients of one wrapper were reduced by it, and by the program where it does so."""
    given = {"wrapper": 0, "forwards": 1, "armed": 1, "reached": 1, "backwards": 1, "backward_site": 7}
    used = ev.Usage(**{**given, "after": digests(after), **usage})
    records = [wrapped(3, **(wrapper or {})), optimizer(wrapper=0, **(built or {}))]
    records.append(exchanged(0, own or carried(0)) if again[0] else exchanged(0))
    for number, is_reduced in enumerate(again):
        if is_reduced:
            records.append(call(number + 1, 8, "all_reduce", detail=detail))
        records.append(
            stepped(entered if is_reduced else after, parameters, number=number, backwards=backwards, usage=[used])
        )
    return records


def found(*ranks):
    judged = coverage.judge(world(*ranks))
    return [f for f in judged.findings if "once more" in f.found]


def test_a_sum_of_what_is_the_same_already():
    """A warning at the line of the sum; it may be divided later by what is no power of two."""
    (one,) = found(rank(), rank())
    assert (one.severity, one.subject, one.where.line, one.count) == ("warning", "a", 8, 2)
    assert "ranks 0 and 1" in one.found
    assert "no_sync()" in one.advice


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"entered": "gh"}, id="the same to the bit, after a division"),
        pytest.param({"detail": "float32 x 4 avg"}, id="a mean"),
        pytest.param({"detail": "float32 x 4 max"}, id="a look at whether they agree"),
        pytest.param({"detail": "float32 x 1 sum"}, id="a sum of something smaller"),
        pytest.param({"again": (False, False)}, id="nothing"),
        pytest.param({"own": carried(0, of="parameter")}, id="parameters"),
        pytest.param({"own": carried(0, alike=False)}, id="what goes to one rank"),
        pytest.param({"own": carried(0, flat=True)}, id="what has their size alone"),
        pytest.param({"own": carried(0, inside=True)}, id="within the step"),
        pytest.param({"no_sync_forwards": 1}, id="a forward within no_sync()"),
        pytest.param({"last_armed": False}, id="the last forward is not armed"),
        pytest.param({"reached": 0}, id="round the wrapper"),
        pytest.param({"backwards": 2}, id="a second backward() that DDP does not reduce"),
        pytest.param({"after": ""}, id="not looked at after the backward()"),
        pytest.param({"built": {"apart": True}}, id="a hook that leaves each rank its own"),
    ],
)
def test_what_is_no_second_sum(other):
    """Each of these is right, or not known to be wrong."""
    assert found(rank(**other), rank(**other)) == []


def test_what_ranks_have_apart_is_not_reduced_yet():
    """As by a communication hook within a node."""
    assert found(rank(after="gh"), rank(after="gi")) == []


def test_now_and_then_there_may_be_a_reason():
    """It has to be so at most of the steps."""
    once = {"again": (True, False)}
    assert found(rank(**once), rank(**once)) == []


def test_a_group_with_ranks_that_the_wrapper_does_not_have():
    """DDP within a node, and the program between nodes."""
    nodes = [{"group": "0,1#node"}, {"group": "2,3#node"}]
    assert found(*[rank(wrapper=nodes[number // 2]) for number in range(4)]) == []
    assert len(found(*[rank() for _ in range(4)])) == 1


# --- as is declared


def replica(number, op=SUM, after_backward=True, of_fsdp=True, group=None, way=("R", "S0"), how="fully_shard",
            through=0):  # fmt: skip
    """A rank of two replicas of two shards, each of one parameter: FSDP calls at line 7, and the program at line 8."""
    pair = group or f"{number % 2},{number % 2 + 2}#replicate"
    calls = [call(1, 7, "all_reduce", group=pair, detail=SUM)] if of_fsdp else []
    own = [call(2, 8, "all_reduce", group=pair, detail=op)]
    part = ev.Carried(place=0, of="gradient", inside=False, group=pair, number=through, offset=0, alike=True)
    return [
        (ev.Parallelised, {"how": how, "site": 3, "ranks": (0, 1, 2, 3)}),
        mesh((2, 2), ("replicate", "shard")),
        sharded(4, {"w": layout(number, (2, 2), way)}),
        *(calls + own if after_backward else own + calls),
        (ev.Exchanged, {"optimizer": 0, "number": 0, "carried": [], "parts": [part]}),
        sharded_step(9, 0, ["g"], backward_site=7),
    ]


def test_copies_that_fsdp_has_reduced():
    """A warning for all of the ranks, once, at the program's own line."""
    (one,) = found(*[replica(number) for number in range(4)])
    assert (one.severity, one.subject, one.where.line, one.count) == ("warning", "w", 8, 1)
    assert one.ranks == (0, 1, 2, 3)
    assert "FSDP had made the same on ranks 0 and 2" in one.found
    assert "no_sync" not in one.advice


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"op": "float32 x 4 max"}, id="a look at whether they agree"),
        pytest.param({"of_fsdp": False}, id="FSDP does not reduce over these"),
        pytest.param({"after_backward": False}, id="before the backward()"),
        pytest.param({"how": "parallelize_module"}, id="nothing says that the backward() reduces"),
        pytest.param({"way": ("P", "S0")}, id="partial sums"),
        pytest.param({"through": -1}, id="what FSDP itself has reduced, and then a sum of something else"),
    ],
)
def test_what_is_no_second_sum_of_copies(other):
    """Each of these is right, or not known to be wrong."""
    assert found(*[replica(number, **other) for number in range(4)]) == []
