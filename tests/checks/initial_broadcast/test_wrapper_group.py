"""What differed between the ranks before a wrap, while ranks beyond it have drawn the same."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.initial_broadcast.run import judge
from tests.judging.own_reductions import digests
from tests.judging.written import call, world, wrapped

NAMES = ["gate.weight", "table.weight"]


def across(*before, groups=("0,1#1", "0,1#1", "2,3#1", "2,3#1"), sent="float32[4, 6], SUM"):
    """Four ranks in two wrappers."""
    parameters = ev.Tensors(names=NAMES, digests=digests("gx"))
    ranks = [
        [
            wrapped(11, parameters=parameters, before=digests(one), group=group),
            call(1, 20, op="all_reduce", group=group, detail=sent),
        ]
        for one, group in zip(before, groups, strict=True)
    ]
    return judge(world(*ranks)).findings


def test_a_wrapper_along_the_dimension_that_is_dealt_out():
    """Ranks 0 and 2 have drawn one part, ranks 1 and 3 the other."""
    found = across("gx", "gy", "gx", "gy")
    assert {(one.severity, one.ranks, one.where.line) for one in found} == {
        ("warning", (0, 1), 11), ("warning", (2, 3), 11)
    }  # fmt: skip
    assert "otherwise than each other and as ranks 2 and 3" in found[0].found


@pytest.mark.parametrize("before", [
    ("gx", "gx", "gy", "gy"),  # along the copies
    ("gx", "gy", "gv", "gw"),  # nobody has drawn the same
    ("ax", "by", "ax", "by"),  # everything by each rank of a group
])  # fmt: skip
def test_a_wrapper_of_copies(before):
    assert across(*before) == ()


def test_ranks_that_send_each_other_no_activations():
    """Those of a node, whose heads are drawn by their places in it: each node may train a model of its own."""
    assert across("gx", "gy", "gx", "gy", sent="float32[], SUM") == ()
