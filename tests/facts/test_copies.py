"""Who holds copies of what, and on what ground, from evidence that is written by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ddpcheck import evidence as ev
from ddpcheck.facts import copies, logical_tensors
from ddpcheck.facts.copies import Holders
from ddpcheck.judging.world import World
from tests.facts.trained import own, trained
from tests.judging.sharded_models import held, layout, mesh, model
from tests.judging.written import Made, call, step

BOTH = frozenset({0, 1})


def added_up(_: int) -> list[Made]:
    return [call(0, 5, op="all_reduce", detail="float32[64, 8] sum")]


def of(given: World, path: str = "a.w") -> Holders:
    """Those of what rank 0 has."""
    each = logical_tensors.of(given)
    return next(copies.of(given)[place][0] for place, one in enumerate(each) if one.path == path and 0 in one.held)


def test_equal_beginnings_are_observed():
    assert of(trained({"a.w": own})) == Holders(BOTH, "drawn")


def test_other_beginnings_are_each_ranks_own():
    assert of(trained({"a.w": own}, began=lambda rank, name: f"{name}{rank}")) == Holders(frozenset({0}), "alone")


def test_a_constant_is_whose_what_was_drawn_in_its_module_is():
    alike = trained({"a.w": own, "a.b": own}, filled=["a.b"])
    assert of(alike, "a.b") == Holders(BOTH, "drawn")
    apart = trained(
        {"a.w": own, "a.b": own}, filled=["a.b"], began=lambda rank, name: name + str(rank) * (name == "a.w")
    )
    assert of(apart, "a.b") == Holders(frozenset({0}), "alone")


def test_a_constant_alone_in_its_module_says_nothing():
    assert of(trained({"a.w": own}, filled=["a.w"])) == Holders(BOTH, "constant")


def test_a_module_that_reads_and_makes_the_same_is_computed_alike():
    def values(_: int, step: int) -> list[tuple[str, str, str]]:
        return [("a", f"in{step}", f"out{step}")]

    assert of(trained({"a.w": own}, values=values, more=added_up)) == Holders(BOTH, "computed")
    given = trained({"a.w": own, "b.w": own}, filled=["a.w"], values=values, more=added_up)
    assert of(given) == Holders(BOTH, "computed")
    # Ranks that give each other nothing compute apart; and a constant is no copy where nothing drawn is.
    assert of(trained({"a.w": own}, values=values)).kind == "drawn"
    assert of(trained({"a.w": own}, filled=["a.w"], values=values, more=added_up)).kind == "constant"


@pytest.mark.parametrize(
    "values",
    [
        lambda rank, step: [("a", f"in{step}", f"out{step}.{rank}")],
        lambda rank, step: [("a", f"in{step}.{rank}", f"out{step}")],
        lambda rank, step: [("b", f"in{step}", f"out{step}")],
        lambda rank, step: [("a", f"in{step}", f"out{step}")] if rank else [],
    ],
)
def test_nothing_less_is(values: Callable[[int, int], list[tuple[str, str, str]]]):
    assert of(trained({"a.w": own}, values=values, more=added_up)).kind == "drawn"


def test_members_of_a_search_have_rates_of_their_own():
    def before(rank: int) -> list[Made]:

        return [step(9, number=0, rates=[0.1 * (rank + 1)])]

    assert of(trained({"a.w": own}, more=before)) == Holders(frozenset({0}), "alone")


def test_stages_that_begin_alike_are_none():
    def stage(rank: int) -> list[Made]:
        given = {"how": "PipelineStage", "site": 2, "stage": rank, "stages": 2, "pipeline": (0, 1)}
        return [(ev.Parallelised, given)]

    assert of(trained({"a.w": own}, more=stage)) == Holders(frozenset({0}), "alone")


def test_a_mesh_says_so():
    given = trained({"a.w": own}, layout=lambda rank: layout(rank, [2], ["R"]), more=lambda _: [mesh([2])])
    assert of(given) == Holders(BOTH, "declared")


def test_a_mesh_of_one_rank_says_nothing_of_the_others():
    """The same model on each is a copy, as far as is known, which something was to bring together."""
    alone = {
        "layout": lambda rank: layout(rank, [1], ["S0"], first=rank, local=(64,)),
        "more": lambda rank: [mesh([1], first=rank)],
    }
    assert of(trained({"a.w": own}, **alone)) == Holders(BOTH, "drawn", is_narrower=True)


def test_a_mesh_names_ranks_that_do_not_have_it():
    """As where a rank has a model of another class."""
    given = trained(
        {"a.w": own},
        layout=lambda rank: layout(rank, [2, 2], ["R", "R"], local=(64,)),
        ranks=3,
        more=lambda _: [mesh([2, 2])],
    )
    assert of(given).ranks == frozenset({0, 1, 2})


def test_what_stands_beside_shards_belongs_to_their_ranks():
    """Also where each rank has drawn its own."""
    shards = {
        0: ev.Layout(ground="DTensor", shape=(64,), mesh=0, placements=("S0",), holders=(0,), local=(32,)),
        1: ev.Layout(ground="DTensor", shape=(64,), mesh=0, placements=("S0",), holders=(1,), local=(32,)),
    }

    def other(rank: int) -> list[Made]:

        return [mesh([2]), model(2, held("c.w", layout=shards[rank]))]

    given = trained(
        {"a.w": own},
        layout=lambda _: ev.Layout(ground="beside"),
        began=lambda rank, name: f"{name}{rank}",
        more=other,
    )
    assert of(given) == Holders(BOTH, "beside")
