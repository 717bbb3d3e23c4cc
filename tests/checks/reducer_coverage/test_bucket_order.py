"""Buckets that the program fills with gradients: in one order on all ranks, or not."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.run import judge
from tests.judging.sharded_models import held, model, optimizer, stepped
from tests.judging.written import world


def judged(orders, begun=("abc", "abc"), group="world", filled=False):
    ranks = []
    for names, values in zip(orders, begun, strict=True):
        tensors = [held(name, value, filled=filled) for name, value in zip("xyz", values, strict=True)]
        bucket = (ev.BucketOrder, {"group": group, "number": 3, "site": 17, "model": 0, "paths": list(names)})
        first = optimizer(4, dict.fromkeys("xyz"), values)
        pieces = [
            ev.Piece(piece=n, model=0, path=name, dtype="float32", shape=(64,), sizes=(64,), offset=(0,))
            for n, name in enumerate("xyz")
        ]
        ranks.append(
            [
                model(8, *tensors),
                (ev.Pieces, {"pieces": pieces}),
                *([bucket] if names else []),
                first,
                stepped(9, 0, "ggg"),
            ]
        )
    return [one for one in judge(world(*ranks, world_size=len(orders))).findings if "bucket" in one.expected]


def test_another_order_on_each_rank():
    (found,) = judged(["xyz", "xzy"])
    assert (found.severity, found.ranks, found.where.line, found.subject, found.step) == ("error", (0, 1), 17, "y", 0)
    assert "y on rank 0, z on rank 1" in found.found


@pytest.mark.parametrize("given", [
    {"orders": ["xyz", "xyz"]},
    {"orders": ["xyz", "xy"]},  # other ones
    {"orders": ["xyz", ""]},  # not seen on one of them
    {"orders": ["xyz", "xzy"], "begun": ("abc", "acb")},  # named otherwise on each rank, as a net and its peer
    {"orders": ["xyz", "xzy"], "filled": True},
    {"orders": ["xyz", "xzy"], "group": "0#1"},
])  # fmt: skip
def test_where_nothing_is_mixed(given):
    assert not judged(**given)
