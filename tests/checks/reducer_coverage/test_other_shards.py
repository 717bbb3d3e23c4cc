"""Collectives of the program's own over what ranks have of DTensors: of the same elements, or of others."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.other_shards import judge
from tests.judging.sharded_models import layout, mesh, optimizer
from tests.judging.written import call, world


def reduced(place=0, of="gradient", group="0,1", alike=True):
    carried = ev.Carried(place=place, of=of, inside=False, group=group, number=1, offset=0, alike=alike)
    return ev.Exchanged, {"optimizer": 0, "number": 0, "carried": [], "parts": [carried]}


def of(exchanged, shape=(2,), placements=("S0",), calls=(8,)):
    """Two pairs, each with a mesh of its own where the shape is that of two ranks."""
    ranks = []
    for rank in range(4):
        first = 0 if len(shape) == 2 else rank // 2 * 2
        where = layout(rank, shape, placements, first=first)
        of_mine = exchanged(rank)
        records = [mesh(shape, first=first), optimizer(3, {"weight": where})]
        group = of_mine[1]["parts"][0].group
        made = [call(number, line, op="all_reduce", group=group) for number, line in enumerate(calls, 1)]
        ranks.append([*records, *made, of_mine])
    return list(judge(world(*ranks)))


def pair(rank):
    return "0,1" if rank < 2 else "2,3"


def peers(rank):
    return "0,2" if rank % 2 == 0 else "1,3"


@pytest.mark.parametrize("what", ["gradient", "parameter"])
@pytest.mark.parametrize(("shape", "placements"), [((2,), ("S0",)), ((2, 2), ("R", "S0"))])
def test_over_those_that_have_other_elements(what, shape, placements):
    (found,) = of(lambda rank: reduced(of=what, group=pair(rank)), shape, placements)
    assert (found.severity, found.ranks, found.subject, found.where.line) == ("error", (0, 1, 2, 3), "weight", 8)
    assert "joins ranks 0 and 1" in found.found


@pytest.mark.parametrize(("shape", "placements"), [((2,), ("S0",)), ((2, 2), ("R", "S0"))])
def test_over_those_that_have_the_same(shape, placements):
    assert of(lambda rank: reduced(group=peers(rank)), shape, placements) == []


@pytest.mark.parametrize("placements", [("R", "R"), ("R", "P"), ("R", "?")])
def test_over_what_is_not_cut(placements):
    assert of(lambda rank: reduced(group=pair(rank)), (2, 2), placements) == []


def test_what_is_not_made_the_same():
    """A gather leaves each rank its own."""
    assert of(lambda rank: reduced(group=pair(rank), alike=False)) == []


def test_the_line_of_the_call_itself():
    """Another one went over the group after it, before the step."""

    def exchanged(rank):
        carried = ev.Carried(place=0, of="gradient", inside=False, group=pair(rank), number=-1, offset=0, alike=True)
        return ev.Exchanged, {"optimizer": 0, "number": 0, "carried": [], "parts": [carried]}

    (found,) = of(exchanged, calls=(8, 9))
    assert found.where.line == 8
