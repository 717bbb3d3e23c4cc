"""What copies become between two steps, from evidence that is written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS, packed
from ddpcheck.facts import mixing
from ddpcheck.facts.mixing import Became, Mixing
from tests.facts.meeting import Ends, Meets, kept, mean, over, ranks_that_meet
from tests.facts.trained import Vector, trained, word
from tests.facts.trained import mean as reduced
from tests.judging.own_reductions import carried
from tests.judging.sharded_models import digest, optimizer
from tests.judging.written import Made, call, exchanged, step


def of(meets: dict[str, Meets], **more: Any) -> Mixing:
    (found,) = mixing.of(ranks_that_meet(meets, **more))
    return found


def became(meets: Meets, rank: int = 0, **more: Any) -> Became:
    """What a rank's copy is before step 2."""
    found = of({"a.w": meets}, **more)
    (between,) = (one for one in found.between if one.number == 2)
    return between.by[0][frozenset({rank})]


def shares(one: Became) -> dict[int, float]:
    return {rank: round(share, 4) for rank, share in one.shares}


def mixed(*given: float, earlier: float = 0.0) -> Meets:
    """By what each rank's is in it, and what the copy was itself when ranks last met."""

    def meets(_: int, __: str, ends: Ends, before: Vector) -> Vector:
        found: Vector = sum((share * ends[one] for one, share in enumerate(given)), earlier * before)
        return found

    return meets


def test_copies_that_nothing_writes_to():
    found = of({"a.w": kept})
    assert {one.how for between in found.between for its in between.by.values() for one in its.values()} == {"kept"}
    assert not any(between.meeting or between.even for between in found.between)
    assert not found.may_meet(0)


def test_a_mean_of_all():
    found = of({"a.w": mean, "b.w": mean}, ranks=3)
    assert [one.number for one in found.between if one.meeting] == [2, 4, 6, 8]
    one = next(one for one in found.between if one.meeting)
    assert one.meeting == one.even == {0, 1}
    assert [line.line for line in one.lines if line is not None] == [20]
    assert all(its.over == {0, 1, 2} and shares(its) == dict.fromkeys(range(3), 0.3333) for its in one.by[0].values())
    assert found.may_meet(0)


@pytest.mark.parametrize(("meets", "given", "earlier"), [
    (mixed(0.25, 0.75), {0: 0.25, 1: 0.75}, 0.0),
    (mixed(0.0, 1.0), {1: 1.0}, 0.0),
    (mixed(0.35, 0.35, earlier=0.3), {0: 0.35, 1: 0.35}, 0.3),
    (mixed(0.5, 0.2, earlier=0.3), {0: 0.5, 1: 0.2}, 0.3),
    (mixed(1.0, 1.0), {0: 1.0, 1: 1.0}, 0.0),
], ids=["weighted", "copied", "towards-an-anchor", "weighted-with-anchor", "sum"])  # fmt: skip
def test_by_which_numbers(meets, given, earlier):
    one = became(meets)
    assert (one.how, shares(one)) == ("mixed", given)
    assert one.earlier == pytest.approx(earlier, abs=1e-4)
    assert one.total == pytest.approx(sum(given.values()) + earlier)


def test_a_factor_of_its_own_is_no_meeting():
    found = of({"a.w": lambda rank, _, ends, __: ends[rank] * 0.9})
    assert not any(one.meeting for one in found.between)
    assert found.is_written(0)


def test_pairs():
    """Each takes half of its own and half of the other's."""
    pairs = over((0, 1), (2, 3))
    assert shares(became(pairs, ranks=4)) == {0: 0.5, 1: 0.5}
    found = of({"a.w": pairs}, ranks=4)
    assert not next(one for one in found.between if one.meeting).even


def test_what_no_sum_explains():
    """The same afterwards on those that had differed, or written to."""

    def noise(_: int, name: str, ends: Ends, __: Vector) -> Vector:
        return np.sign(sum(ends.values())) * 3

    def own_noise(rank: int, name: str, ends: Ends, __: Vector) -> Vector:
        return np.sign(ends[rank]) * (3 + rank)

    assert became(noise)[:2] == ("evened", {0, 1})
    assert became(own_noise)[:2] == ("written", frozenset())
    assert of({"a.w": own_noise}).may_meet(0)


def test_one_number_may_be_bounded_on_each_rank_alike():
    found = of({"a.w": lambda *_: np.full(NUMBERS, -50.0)}, elements=1)
    assert not any(one.meeting for one in found.between)


def test_few_numbers_are_treated_as_most_are():
    """A tensor of one element fits in many ways; those beside it say which it is."""
    pair = {"a.w": mixed(0.25, 0.75), "b.w": mixed(0.25, 0.75)}
    found = of(pair, elements={"a.w": 64, "b.w": 1})
    assert {shares(one)[1] for between in found.between if between.meeting for one in between.by[1].values()} == {0.75}
    alone = of(pair, elements=1)
    assert not any(one.shares for between in alone.between for copies in between.by.values() for one in copies.values())


def test_of_digests_alone():
    """Steps of which only what the exchange before them made is known."""
    found = of({"a.w": mean, "b.w": kept}, sketched=3)
    later = [one for one in found.between if one.number > 3]
    assert [one.number for one in later] == [4, 6, 8]
    assert all(one.meeting == one.even == {0} and 1 in one.by for one in later)
    assert later[0].by[0][frozenset({0})] == Became("evened", frozenset({0, 1}))


def test_what_is_not_looked_at_may_have_met():
    found = of({"a.w": kept}, sketched=1)
    assert found.may_meet(0)


def test_copies_that_are_the_same_tell_nothing():
    assert of({"a.w": mean}, every=1).between[0].number == 1
    (quiet,) = mixing.of(trained({"a.w": reduced}, parts=False))
    assert len(quiet.family.windows) == 4
    assert not quiet.between


def test_collectives_that_make_the_same_of_them():
    def before(_: int) -> list[Any]:
        return [exchanged(number, *([carried(0, "parameter")] if number % 2 == 0 else ())) for number in range(1, 9)]

    found = of({"a.w": kept}, exchanges=before)
    assert [one.number for one in found.between if one.carried] == [2, 4, 6, 8]


def test_rounds_in_which_something_else_is_exchanged():
    """A table that is averaged in few rounds, none of which was looked at."""

    def sent(detail: str) -> Callable[[int], list[Made]]:
        return lambda _: [call(0, 5, op="all_reduce", detail=detail)]

    assert of({"a.w": kept}).is_all_seen
    assert not of({"a.w": kept}, exchanges=sent("float32[64], SUM")).is_all_seen
    assert of({"a.w": kept}, exchanges=sent("float32[], SUM")).is_all_seen
    assert of({"a.w": kept}, more=sent("float32[64], SUM")).is_all_seen  # before training began


def test_many_copies_are_solved_together():
    """More than the numbers of one tensor can say: several tensors have to."""
    shares_of = np.arange(1.0, 11.0) / 55

    def weighted(_: int, __: str, ends: Ends, ___: Vector) -> Vector:
        found: Vector = sum(share * ends[one] for one, share in enumerate(shares_of))
        return found

    found = of({f"{name}.w": weighted for name in "abcdef"}, ranks=10, steps=4)
    one = next(one for one in found.between if one.meeting).by[0][frozenset({0})]
    assert [round(share * 55, 2) for _, share in one.shares] == [float(n) for n in range(1, 11)]


def test_the_ledger_by_places_of_an_optimizer():
    world = ranks_that_meet({"a.w": mean, "b.w": kept})
    assert mixing.brought_together(world, 0, 0) == {0}
    assert mixing.is_trained_apart(world)
    assert not mixing.is_trained_apart(ranks_that_meet({"a.w": kept}))


def test_other_types_round_otherwise():
    """In bfloat16, copies that are nearly alike cannot be distinguished."""

    def rough(_: int, __: str, ends: Ends, ___: Vector) -> Vector:
        found: Vector = np.mean(list(ends.values()), axis=0) * 1.001
        return found

    assert became(rough, piece={"dtype": "bfloat16"}).how == "evened"
    assert shares(became(rough)) == {0: 0.5005, 1: 0.5005}


# --- of several optimizers, and some steps apart


def second(comes: Callable[[int], Vector], steps: int = 3) -> Callable[[int], list[Made]]:
    """What another optimizer does afterwards with the same tensor, which each rank holds then as is said."""

    def records(rank: int) -> list[Made]:
        def noted(moment: str, of: Vector) -> Made:
            return ev.Values, {
                "at_moment": moment, "optimizer": None if moment == "W" else 1, "number": 0 if moment != "W" else steps,
                "backwards": steps + 1, "since": (steps, steps), "pieces": [0], "places": [-1 if moment == "W" else 0],
                "digests": digest(word(of)), "sketches": packed([of]),
            }  # fmt: skip

        one = comes(rank)
        return [
            optimizer(3, {"a.w": None}, ["a.w"], groups=[1], optimizer=1),
            noted("W", one),
            noted("G", one),
            noted("U", one + 1 + rank),
            step(9, optimizer=1, number=0, rates=[0.1], parameters=digest(word(one + 1 + rank))),
        ]

    return records


@pytest.mark.parametrize("looked", [3, 2], ids=["the-last-step", "one-before"])
def test_copies_meet_between_two_optimizers(looked):
    """One that is made anew for each round."""
    later = second(lambda _: np.full(NUMBERS, 7.0))
    _, found = mixing.of(ranks_that_meet({"a.w": kept}, steps=3, sketched=looked, exchanges=later))
    (between,) = found.between
    assert (between.number, between.is_next, between.even) == (0, looked == 3, {0})
    assert {one.how for one in between.by[0].values()} == {"evened"}


def test_copies_that_another_optimizer_finds_as_they_were():
    last = mixing.of(ranks_that_meet({"a.w": kept}, steps=3))[0].family.windows[-1].ranks
    ends = {rank: next(iter(window.after.values())).sketch for rank, window in last.items()}
    _, found = mixing.of(ranks_that_meet({"a.w": kept}, steps=3, exchanges=second(lambda rank: ends[rank])))
    assert {one.how for one in found.between[0].by[0].values()} == {"kept"}


def test_steps_without_a_look():
    """It is known who is the same afterwards, and of others that they still differ."""
    found = of({"a.w": mean, "b.w": kept}, every=4, steps=13, sketched=3)
    later = [one for one in found.between if one.number > 3]
    assert [(one.number, one.is_next) for one in later] == [(4, True), (8, True), (12, True)]
    seldom = of({"a.w": mean, "b.w": kept}, every=4, steps=13, sketched=3, ended=lambda number: number < 3)
    later = [one for one in seldom.between if one.number > 3]
    assert [(one.number, one.is_next, one.meeting) for one in later] == [(n, False, {0}) for n in (4, 8, 12)]
    assert {one.how for between in later for one in between.by[1].values()} == {"passed"}
