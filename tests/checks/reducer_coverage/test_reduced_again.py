"""What a wrapper has averaged, and the program adds up once more."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage import reduced_again
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import call, world


def ran(times, group="0,2#1", over=(0, 1, 2, 3), steps=2, of="gradient", alike=True, flat=False):
    """Four ranks, HSDP of two by two: gradients that a wrapper averages, and what they are multiplied by after that."""
    ranks = []
    for rank in range(4):
        records = [
            mesh((2, 2), ("replicate", "shard")),
            (ev.Model, {"model": 0, "kind": "Net", "site": 2, "held": []}),
            optimizer(3, {"w": layout(rank, (2, 2), ("R", "S0"))}),
            call(0, 6, "all_reduce", group=group),
        ]
        part = ev.Carried(place=0, of=of, inside=False, group=group, number=-1, offset=0, alike=alike, flat=flat)
        records.append((ev.Exchanged, {"optimizer": 0, "number": 0, "carried": [], "parts": [part]}))
        for window in range(steps):
            left = [1.0 + rank + window, 2.0, -1.0]
            for number, numbers in ((None, left), (0, [times * one for one in left])):
                each = [ev.Sums(model=0, path="w", kind="float32[64]", numbers=numbers, over=list(over), divisor=4.0)]
                records.append((ev.GradientSums, {"window": window, "optimizer": number, "each": each}))
            records.append(stepped(7, window, [f"g{window}"]))
        ranks.append(records)
    return world(*ranks)


def test_the_sum_over_replicas_once_more():
    (finding,) = reduced_again.judge(ran(2.0))
    assert (finding.severity, finding.subject, finding.where.line) == ("warning", "w", 7)
    assert "added up over ranks 0 and 2" in finding.found
    assert "2 times the mean" in finding.found


@pytest.mark.parametrize("more", [
    {"times": 1.0},  # an average of what is equal
    {"times": 0.5},
    {"times": 2.0, "steps": 1},  # too early to say
    {"times": 2.0, "over": (0, 1)},  # the wrapper's mesh has not that dimension
    {"times": 2.0, "of": "parameter"},
    {"times": 2.0, "alike": False},
    {"times": 2.0, "flat": True},
    {"times": 2.0, "group": "0#1"},
    {"times": 4.0, "over": (), "group": "0,1,2,3#1"},  # nothing but the program's own reduction
])  # fmt: skip
def test_once_or_not_known(more):
    assert list(reduced_again.judge(ran(**more))) == []
