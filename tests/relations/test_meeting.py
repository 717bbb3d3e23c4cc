"""What is not whole when copies meet, from evidence that is written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ddpcheck.facts import mixing
from ddpcheck.relations.meeting import Deviation, Meetings, meetings
from tests.facts.meeting import Ends, Meets, kept, mean, over, ranks_that_meet
from tests.facts.trained import Vector
from tests.judging.loaded import loader, through
from tests.judging.own_reductions import carried
from tests.judging.sharded_models import held, model
from tests.judging.written import Made, call, exchanged, transfers


def of(meets: dict[str, Meets], **more: Any) -> Meetings:
    ranks = more.get("ranks", 2)
    return meetings(mixing.of(ranks_that_meet(meets, **more)), {2, ranks})


def deviation(meets: dict[str, Meets], **more: Any) -> Deviation:
    (found,) = of(meets, **more).deviations
    return found


def dealt(rank: int) -> list[Made]:
    """Its share of one dataset."""
    return [loader(rank=rank), *through([rank, rank + 2, rank + 4, rank + 6], ended=False)]


def test_means_of_all():
    found = of({"a.w": mean, "b.w": mean}, ranks=3)
    assert not found.deviations
    assert found.windows == {(0, 2), (0, 4), (0, 6), (0, 8)}


def test_nothing_that_meets():
    assert of({"a.w": kept}) == Meetings(set(), [])


# --- tensors


def test_a_tensor_that_is_left_out():
    one = deviation({"a.w": mean, "b.w": kept})
    assert (one.pattern, one.ground, one.names, one.others, one.windows) == (
        "left out",
        "observed",
        ["b.w"],
        1,
        [2, 4, 6, 8],
    )
    assert one.line is not None
    assert one.line.line == 20
    assert not of({"a.w": mean, "b.w": kept}).windows  # it may be meant


@pytest.mark.parametrize("more", [
    {"began": lambda rank, name: f"{name}{rank}" if name == "b.w" else name},
    {"filled": ["b.w"]},
    {"steps": 5},
    {"sketched": 1},
    {"times": lambda turn, name, meets: mean if turn == 4 else meets},
    {"times": lambda turn, name, meets: kept if (turn == 2) == (name == "a.w") else mean},
], ids=["began-apart", "constant", "twice", "not-looked-at", "seldom", "in-turn"])  # fmt: skip
def test_what_may_be_left_out(more):
    assert not of({"a.w": mean, "b.w": kept}, **more).deviations


def test_one_dataset_is_ground_for_a_warning():
    """Other data at the same indices are a rank's own."""
    assert deviation({"a.w": mean, "b.w": kept}, more=dealt).ground == "dealt"

    def of_its_own(rank: int) -> list[Made]:
        return [loader(rank=rank), *through(range(8), contents=[(rank, place) for place in range(8)], ended=False)]

    assert deviation({"a.w": mean, "b.w": kept}, more=of_its_own).ground == "observed"


# --- ranks


def taken_by(*ranks: int) -> Meets:
    def meets(rank: int, _: str, ends: Ends, __: Vector) -> Vector:
        found: Vector = np.mean(list(ends.values()), axis=0)
        return found if rank in ranks else ends[rank]

    return meets


def test_a_mean_that_one_rank_does_not_take():
    one = deviation({"a.w": taken_by(0, 1)}, ranks=3)
    assert (one.pattern, one.ground, one.ranks, one.windows) == ("taken by some", "done", {2}, [2, 4, 6, 8])


def test_who_keeps_its_own_in_turn():
    """Or is not in it: as one that others copy."""
    assert not of({"a.w": taken_by(0, 1)}, ranks=3, times=lambda turn, _, __: taken_by(0, turn % 3)).deviations
    assert not of({"a.w": lambda rank, _, ends, __: ends[0]}, ranks=3).deviations
    assert not of(
        {"a.w": lambda rank, _, ends, __: (ends[0] + ends[1]) / 2 if rank < 2 else ends[2]}, ranks=3
    ).deviations


def test_groups_that_nothing_joins():
    """Among ranks that share a dataset, and exchange nothing but within their groups."""
    pairs: dict[str, Meets] = {"a.w": over((0, 1), (2, 3)), "b.w": over((0, 1), (2, 3))}
    one = deviation(pairs, ranks=4, more=shared)
    assert (one.pattern, one.names, one.sets) == ("in groups", ["a.w", "b.w"], [{0, 1}, {2, 3}])
    assert not of(pairs, ranks=4).deviations


def test_parts_that_other_ranks_hold_are_groups_of_their_own():
    """As in tensor parallelism by hand: ranks 0 and 2 have one half of a layer, and 1 and 3 the other one."""
    halves: dict[str, Meets] = {"a.w": over((0, 2), (1, 3)), "b.w": over((0, 2), (1, 3))}
    found = of(halves, ranks=4, more=shared, began=lambda rank, name: f"{name}{rank % 2}")
    assert not found.deviations


@pytest.mark.parametrize("more", [
    {"times": lambda turn, _, meets: mean if turn == 3 else meets},
    {"exchanges": lambda _: [call(0, 5, op="all_reduce", detail="float32[1000], SUM")]},
], ids=["joined-once", "exchanges-something-else"])  # fmt: skip
def test_groups_that_something_may_join(more):
    assert not of({"a.w": over((0, 1), (2, 3))}, ranks=4, more=shared, **more).deviations


def shared(rank: int) -> list[Made]:
    return [transfers(), loader(rank=rank, replicas=4), *through([rank, rank + 4, rank + 8, rank + 12], ended=False)]


def mean_in_a_copy(_: int) -> list[Made]:
    """A collective over a parameter before every second step."""
    return [exchanged(number, *([carried(0, "parameter")] if number % 2 == 0 else ())) for number in range(9)]


def test_a_mean_that_no_rank_takes():
    one = deviation({"a.w": kept}, more=dealt, exchanges=mean_in_a_copy)
    assert (one.pattern, one.ground, one.ranks, one.windows) == ("not taken", "dealt", {0, 1}, [2, 4, 6, 8])


@pytest.mark.parametrize(("meets", "more"), [
    ({"a.w": kept}, {}),
    ({"a.w": kept, "b.w": kept}, {"more": dealt}),
    ({"a.w": kept}, {"more": dealt, "steps": 5}),
    ({"a.w": kept}, {"more": dealt, "times": lambda turn, _, meets: mean if turn == 3 else meets}),
    ({"a.w": kept}, {"more": lambda rank: [*dealt(rank), model(2, held("a.w"), model=1)]}),
], ids=["no-shared-dataset", "in-part", "twice", "taken-once", "for-another-model"])  # fmt: skip
def test_a_mean_that_may_be_for_something_else(meets, more):
    assert not of(meets, exchanges=mean_in_a_copy, **more).deviations


# --- shares


@pytest.mark.parametrize(("factor", "is_found"), [(2.0, True), (0.5, True), (1.0, False), (0.9, False)])
def test_shares_that_do_not_add_up_to_one(factor, is_found):
    """By a size; what a program multiplies models by may be meant."""

    def scaled(_: int, __: str, ends: Ends, ___: Vector) -> Vector:
        found: Vector = np.mean(list(ends.values()), axis=0) * factor
        return found

    found = [one for one in of({"a.w": scaled, "b.w": scaled}).deviations if one.pattern == "scaled"]
    assert [round(one.share, 4) for one in found] == ([factor] if is_found else [])


def test_a_move_towards_what_was_before():
    """As an outer optimizer takes: shares of now and of then add up to one."""

    def moved(_: int, __: str, ends: Ends, before: Vector) -> Vector:
        found: Vector = before + 0.7 * (np.mean(list(ends.values()), axis=0) - before)
        return found

    assert not of({"a.w": moved, "b.w": moved}).deviations


# --- lines


def test_what_made_copies_the_same_and_does_not_any_more():
    """The change that ranks have in common is counted from what each had at some step."""
    base: dict[int, Vector] = {}

    def own_base(rank: int, _: str, ends: Ends, __: Vector) -> Vector:
        base.setdefault(rank, ends[rank])
        found: Vector = base[rank] + 0.7 * np.mean(list(ends.values()), axis=0) - 0.7 * base[0]
        return found

    def half(rank: int, _: str, ends: Ends, __: Vector) -> Vector:
        found: Vector = ends[rank] / 2 + np.mean(list(ends.values()), axis=0) / 2
        return found

    def late(then: Meets) -> Any:
        return lambda turn, _, meets: then if turn > 2 else meets

    found = [one for one in of({"a.w": mean}, times=late(own_base)).deviations if one.pattern == "parted"]
    assert [(one.windows, one.before is not None and one.before[1]) for one in found] == [([8], 2)]
    assert not of({"a.w": mean}, times=late(half)).deviations  # each keeps half of its own, on purpose
    base.clear()
    other_line = of({"a.w": mean}, times=late(own_base), line=lambda number: 20 if number < 5 else 30).deviations
    assert not [one for one in other_line if one.pattern == "parted"]
