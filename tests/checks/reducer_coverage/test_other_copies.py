"""Gradients that are added up over ranks with other values, and not over those with copies."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.run import judge
from tests.checks.token_weight.test_whole_weight import gradients
from tests.judging.own_reductions import digests, optimizer, stepped
from tests.judging.written import call, world

GROUPS = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}


def judged(begun, ended, groups=GROUPS, filled=False):
    """Four ranks; by rank, a letter for what its expert was at first, and after the last step."""
    ranks = []
    for rank in range(4):
        over = groups[rank]
        name = ",".join(map(str, over)) + "#1"
        described = optimizer(names="w", values=begun[rank])
        described[1]["parameters"] = [
            ev.Parameter(name="w", kind="float32[4]", wrapper=None, reduced=False, model=0, path="w", filled=filled)
        ]
        # Between its first forward and the first step, it may have been sent.
        held = ev.Held(name="w", kind="float32[4]", digest=digests("f"), filled=filled)
        records = [(ev.Model, {"model": 0, "kind": "Net", "site": 8, "held": [held]}), described]
        for window in range(2):
            records += [call(window, 20, op="all_reduce", group=name), *gradients(rank, window, w=(over, 0.5))]
            records.append(stepped("g", ended[rank], number=window))
        ranks.append(records)
    return [one for one in judge(world(*ranks)).findings if "over the ranks that have copies" in one.expected]


def test_across_the_copies():
    (found,) = judged("xyxy", "abcd")
    assert (found.severity, found.ranks, found.where.line, found.subject) == ("warning", (0, 1, 2, 3), 9, "w")
    assert "over ranks 0 and 1" in found.found
    assert "ranks 0 and 2, which began alike" in found.found


@pytest.mark.parametrize(("begun", "ended", "more"), [
    ("xyxy", "abab", {"groups": {0: (0, 2), 2: (0, 2), 1: (1, 3), 3: (1, 3)}}),  # over the copies
    ("xyxy", "abab", {}),  # they do not part
    ("wxyz", "abcd", {}),  # nobody has a copy
    ("xxxx", "abcd", {}),
    ("xyxy", "abcd", {"filled": True}),  # constants are alike by chance
])  # fmt: skip
def test_where_it_is_not_so(begun, ended, more):
    assert not judged(begun, ended, **more)
