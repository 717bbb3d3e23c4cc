"""Experts of which several ranks have a copy each, and that no ranks ever bring together."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.run import judge
from tests.checks.token_weight.test_whole_weight import LOCAL, sums
from tests.judging.own_reductions import carried, digests
from tests.judging.written import call, exchanged, step, world

UNMOVED = (ev.MovedBetween, {"optimizer": 0, "number": 2, "moved": [1]})
PAIRS = {0: "0,1#1", 1: "0,1#1", 2: "2,3#2", 3: "2,3#2"}


def judged(begun="xyxy", ended="abcd", windows=4, alone=True, trunk=(0, 1, 2, 3), exchange=True, filled=False,
           more=(UNMOVED,)):  # fmt: skip
    """Four ranks with a trunk that all average, and an expert each; letters as in the values that these have."""
    ranks = []
    for rank in range(4):
        own = (rank,) if alone else (rank % 2, rank % 2 + 2)
        held = [
            ev.Held(name="w", kind="float32[4]", digest=digests(begun[rank]), filled=filled),
            ev.Held(name="t", kind="float32[4]", digest=digests("t")),
        ]
        parameters = [
            ev.Parameter(name=name, kind="float32[4]", wrapper=None, reduced=False, model=0, path=name, filled=filled)
            for name in "wt"
        ]
        records = [
            (ev.Model, {"model": 0, "kind": "Net", "site": 8, "held": held}),
            (ev.Optimizer, {"optimizer": 0, "kind": "SGD", "site": 4, "parameters": parameters, "sharded": False,
                            "values": digests(begun[rank] + "t")}),
        ]  # fmt: skip
        for window in range(windows):
            if exchange:
                records.append(call(window, 20, op="all_to_all_single", group=PAIRS[rank]))
            records.append(call(window, 21, op="all_reduce", group="world"))
            records.append(call(window, 22, op="all_reduce", group=f"{rank % 2},{rank % 2 + 2}#3"))
            left = [sums(path, LOCAL[rank]) for path in "wt"]
            stepped = [sums("w", [0.5 * sum(LOCAL[r][i] for r in own) for i in range(6)])]
            if trunk:
                stepped.append(sums("t", [0.25 * sum(LOCAL[r][i] for r in trunk) for i in range(6)]))
            records.append((ev.GradientSums, {"window": window, "optimizer": None, "each": left}))
            records.append((ev.GradientSums, {"window": window, "optimizer": 0, "each": stepped}))
            records.append(
                step(9, number=window, place=window, gradients=digests("gg"), parameters=digests(ended[rank] + "t"))
            )
        ranks.append([*records, *more])
    return [one for one in judge(world(*ranks)).findings if one.expected.startswith("gradients of a parameter to be")]


def test_copies_that_nobody_brings_together():
    (found,) = judged()
    assert (found.severity, found.ranks, found.where.line, found.subject) == ("warning", (0, 1, 2, 3), 9, "w")
    assert "ranks 0 and 2, ranks 1 and 3 began alike" in found.found


@pytest.mark.parametrize("given", [
    {"alone": False, "ended": "abab"},
    {"ended": "abab"},  # they do not diverge, by whatever means
    {"begun": "xxxx"},  # a head of each rank's own
    {"begun": "wxyz"},  # an expert of each rank's own
    {"begun": "xyxx"},
    {"exchange": False},  # nothing is dealt out among these
    {"trunk": ()},  # there is nothing that all bring together: two trainings
    {"windows": 2},
    {"filled": True},
    {"more": []},  # nobody has looked whether they are averaged between steps
    {"more": [UNMOVED, exchanged(1, carried(0, of="parameter"))]},  # averaged after the steps
    {"more": [(ev.MovedBetween, {"optimizer": 0, "number": 3, "moved": [0]})]},  # by way of a copy
])  # fmt: skip
def test_where_it_is_not_so(given):
    assert not judged(**given)
