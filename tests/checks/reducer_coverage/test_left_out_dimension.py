"""A model that is sharded along one dimension of a mesh, on ranks that differ in another one."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.left_out_dimension import judge
from tests.judging.own_reductions import carried
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import call, exchanged, world, wrapped

UNMOVED = (ev.MovedBetween, {"optimizer": 0, "number": 1, "moved": []})


def part_of_mesh(rank, names):
    """The ranks along the first dimension; the second one is left out."""
    ranks = (rank % 2, rank % 2 + 2)
    return ev.Mesh, {"mesh": 1, "names": names[:1], "shape": (2,), "ranks": ranks}


def judged(
    names=("dp", "sp"),
    begun="aabb",
    last=("cdef", "ghij"),
    more=(UNMOVED,),
    whole=False,
    filled=False,
    rates=(0.1,) * 4,
):
    """Four ranks; what each has of one weight, before the first step and after each."""
    ranks = []
    for rank in range(4):
        where = layout(rank, (2, 2), ("S0", "R"), mesh=0) if whole else layout(rank // 2, (2,), ("S0",), mesh=1)
        record, given = optimizer(10, {"weight": where}, [begun[rank]])
        if filled:
            given["parameters"] = [ev.Parameter(**{**as_dict(given["parameters"][0]), "filled": True})]
        steps = [
            stepped(12, number, [f"g{rank}{number}"], [its[rank]], rates=[rates[rank]])
            for number, its in enumerate(last)
        ]
        sharded = (ev.Parallelised, {"how": "fully_shard", "site": 7, "ranks": (rank % 2, rank % 2 + 2)})
        ranks.append([mesh((2, 2), names), part_of_mesh(rank, names), sharded, (record, given), *steps, *more])
    return list(judge(world(*ranks)))


def as_dict(parameter):
    return {name: getattr(parameter, name) for name in parameter.__struct_fields__}


@pytest.mark.parametrize("names", [("dp", "sp"), ("dp", "cp"), ("shard", "replicate")])
def test_copies_that_part_along_it(names):
    (found,) = judged(names)
    assert (found.severity, found.ranks, found.subject) == ("warning", (0, 1, 2, 3), "weight")
    assert found.where.line == 7
    assert f"leaves out {names[1]}" in found.cause


@pytest.mark.parametrize("given", [
    {"names": ("dp", "tp")},  # shards of a layer, whoever has declared them
    {"names": ("dp", "member")},  # nobody knows what that is
    {"begun": "abcd"},  # each its own
    {"last": ("ccdd", "eeff")},  # brought together in whatever way
    {"last": ("cdef", "ggii")},  # now and then
    {"last": ("cdef",)},  # too early to say
    {"last": ("cdee", "fghh")},  # in one half of the mesh alone
    {"whole": True},  # it lies on all of the mesh: declared copies are compared elsewhere
    {"filled": True},
    {"rates": (0.1, 0.3, 0.1, 0.3)},  # members of a search
    {"more": ()},  # nobody has looked whether it was written to
    {"more": [(ev.MovedBetween, {"optimizer": 0, "number": 1, "moved": [0]})]},  # averaged between steps
    {"more": [UNMOVED, exchanged(0, carried(0))]},  # over all ranks
    {"more": [UNMOVED, call(1, 13, op="all_reduce", detail="float32[32], SUM")]},  # a change of it, it may be
])  # fmt: skip
def test_where_nothing_is_wrong(given):
    assert judged(**given) == []


def test_a_number_for_a_log():
    assert judged(more=[UNMOVED, call(1, 13, op="all_reduce", detail="float32[], SUM")])


def test_wrappers_of_a_part_of_the_mesh():
    """DistributedDataParallel over the groups of one dimension."""
    ranks = []
    for rank in range(4):
        group = ",".join(str(one) for one in (rank % 2, rank % 2 + 2))
        record, given = optimizer(10, {"weight": None}, ["a"])
        parameter = {**as_dict(given["parameters"][0]), "wrapper": 0, "reduced": True}
        given["parameters"] = [ev.Parameter(**parameter)]
        steps = [stepped(12, number, [f"g{rank % 2}"], [f"v{number}{rank % 2}"]) for number in range(2)]
        ranks.append([mesh((2, 2), ("dp", "cp")), wrapped(6, group=group), (record, given), *steps, UNMOVED])
    (found,) = judge(world(*ranks))
    assert found.where.line == 6
    assert "leaves out cp" in found.cause
