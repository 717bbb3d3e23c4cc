"""Squares that are summed up along one dimension of a mesh, and what comes of that along another one."""

from __future__ import annotations

import math
from typing import Any

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm.run import judge
from tests.checks.clip_norm.test_run import norm
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import Made, world


def in_turn(where: list[ev.Layout | None], bound: float) -> Any:
    """Four ranks of a mesh that sum up all squares along its first dimension, and what came of it along the second."""
    copied, cut = ([4.0, 9.0, 1.0], [3.0, 5.0, 7.0]), ([1.0, 2.0, 4.0], [6.0, 3.0, 2.0])
    each: list[list[Made]] = []
    for rank in range(4):
        first, second = rank // 2, rank % 2
        records = [
            mesh((2, 2), ("dp", "tp")),
            optimizer(3, {f"w{place}": one(rank) for place, one in enumerate(where)}),
        ]
        for number in range(3):
            of = [[copied[dp][number], cut[dp][number] + tp] for dp in range(2) for tp in range(2)]
            sums = [sum(of[tp]) + sum(of[2 + tp]) for tp in range(2)]
            factor = bound / math.sqrt(sum(sums))
            along = (f"{second},{second + 2}#1", f"{2 * first},{2 * first + 1}#1")
            for group, given, came, site in zip(
                along, (sum(of[rank]), sums[second]), (sums[second], sum(sums)), (6, 7), strict=True
            ):
                more = {"given": given, "came": came, "group": group, "site": site}
                records.append(norm(number, of[rank], factor, "all_reduce", **more))
            records.append(stepped(9, number, ["g", "h"]))
        each.append(records)
    return world(*each)


def along(*placements: str) -> Any:
    """Where a parameter lies, rank by rank."""
    return lambda rank: layout(rank, (2, 2), placements)


def test_copies_along_the_second_of_two_sums():
    """They show by what is declared, and the finding is at the line that counts them."""
    (finding,) = judge(in_turn([along("S0", "R"), along("S0", "S0")], 0.3)).findings
    assert (finding.severity, finding.subject, finding.ranks) == ("error", "w0", (0, 1, 2, 3))
    assert finding.where is not None
    assert finding.where.line == 7
    assert "of which 2 ranks have copies, are counted 2 times" in finding.found


def test_equal_gradients_along_the_second_of_two_sums():
    """A layer that no plan names lies on no tp dimension; that its gradients are the same there is a warning."""
    (finding,) = judge(in_turn([lambda _: None, along("S0", "S0")], 0.3)).findings
    assert (finding.severity, finding.subject) == ("warning", "w0")
    assert judge(in_turn([along("S0", "S0"), along("S0", "S0")], 0.3)).findings == ()
