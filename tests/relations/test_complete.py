"""Who has no share in what is stepped on, from evidence that is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.facts import mixing
from ddpcheck.judging.world import World
from ddpcheck.relations.complete import Completeness, Deviation, completeness
from tests.facts.trained import Contributed, Stepped, Vector, among, mean, own, trained
from tests.judging.written import Made, call


def complete(given: World) -> Completeness:
    (found,) = mixing.of(given)
    return completeness(found)


def deviation(stepped: Mapping[str, Stepped], **more: Any) -> Deviation:
    (found,) = complete(trained(stepped, **more)).deviations
    return found


def last(_: int, __: str, of: Contributed, ___: Vector | None) -> Vector:
    """What the last of the backward() calls has contributed."""
    most = max(call for _, call in of)
    return np.sum([one for (_, call), one in of.items() if call == most], axis=0) / 2


def given_each_other(_: int) -> list[Made]:
    """As activations are that are added up, before the steps."""
    return [call(0, 5, op="all_reduce", detail="float32[64, 8] sum")]


def windows(leftover: bool = False) -> Callable[[int], list[Made]]:
    """What is known of each window: whether its first backward() has found what was stepped on before."""
    given = {"optimizer": 0, "site": 9, "backwards": 3, "backward_site": 5, "between": [], "leftover": leftover}
    return lambda _: [(ev.Window, {"number": number, **given}) for number in range(4)]


def alike(_: int, step: int) -> list[tuple[str, str, str]]:
    return [("a", f"in{step}", f"out{step}")]


def test_what_is_added_up_over_all_holders_is_complete():
    found = complete(trained({"a.w": mean}, parts=False))
    assert not found.deviations
    assert found.windows == {(0, number) for number in range(4)}


def test_a_window_that_one_rank_alone_has_looked_at_is_not_known():
    """What the others have contributed to it is on record nowhere."""

    def same(number: int, _: int, call: int, name: str) -> Vector:
        return np.random.default_rng([number, call, ord(name)]).normal(size=NUMBERS)

    given = trained(
        {"a": own, "b": own}, steps=6, contributed=same, looked=lambda rank, number: rank == 0 or number < 4
    )
    assert complete(given).windows == set()


def test_what_is_left_out_of_what_adds_up_all_else():
    found = deviation({"a.w": own, "b.w": mean})
    assert (found.pattern, found.ground, found.names, found.ranks) == ("own", "joined", ["a.w"], (0, 1))
    assert (found.windows, found.of, found.cause) == ([0, 1, 2, 3], 4, "alone")
    assert found.line is not None
    assert found.line.line == 9


def test_copies_that_nothing_adds_up_are_observed():
    """Their windows are neither complete nor incomplete."""
    found = complete(trained({"a.w": own}))
    assert [one.ground for one in found.deviations] == ["observed"]
    assert not found.windows


def test_a_constant_is_observed_the_less():
    assert deviation({"a.w": own, "b.w": mean}, filled=["a.w"]).ground == "constant"


def test_what_is_computed_alike_and_differs_is_partial():
    found = deviation({"a.w": own}, values=alike, more=given_each_other)
    assert (found.pattern, found.ground) == ("own", "computed")
    beside = deviation({"a.w": own, "b.w": mean}, filled=["a.w"], values=alike, more=given_each_other)
    assert (beside.ground, beside.names) == ("computed", ["a.w"])


@pytest.mark.parametrize(("factor", "is_known"), [(1.0, True), (3.0, False)], ids=["the-same", "a-multiple"])
def test_a_contribution_that_is_like_another_one(factor, is_known):
    """Ranks that have computed the same are complete; of a multiple it is not known which of them is in it."""
    vector = np.arange(1.0, NUMBERS + 1)

    def contributed(number: int, rank: int, _: int, name: str) -> Vector:
        its_own = np.cos(vector * (number + rank + 1))
        return its_own if name == "b.w" else vector * (number + 1) * (factor if rank else 1.0)

    apart = {"began": lambda rank, name: name + str(rank) * (name == "b.w")}
    found = complete(trained({"a.w": own, "b.w": own}, contributed=contributed, **apart))
    assert not found.deviations
    assert bool(found.windows) == is_known


def test_ranks_that_give_each_other_nothing_compute_apart():
    """Members of an ensemble may read the same batches, and begin with a constant."""
    assert deviation({"a.w": own}, values=alike).ground == "observed"
    apart = {"began": lambda rank, name: name + str(rank) * (name == "b.w"), "filled": ["a.w"], "values": alike}
    found = complete(trained({"a.w": own, "b.w": own}, more=given_each_other, **apart)).deviations
    assert [one.ground for one in found] == ["constant"]


def test_activations_that_ranks_give_each_other_leave_open_whose_samples_count():
    def exchanges(_: int) -> list[Made]:
        return []

    def late(_: int) -> list[Made]:
        return [call(0, 5, op="all_to_all_single", detail="float32 (64, 8)")]

    assert deviation({"a.w": own, "b.w": mean}, more=exchanges).ground == "joined"
    assert deviation({"a.w": own, "b.w": mean}, after=late).ground == "observed"


@pytest.mark.parametrize(
    "more",
    [
        {"moved": True},  # they meet between steps
        {"parts": False},  # or within the step
        {"began": lambda rank, name: f"{name}{rank}"},  # each rank's own
        {"steps": 2},  # too seldom to be the way in which a program steps
    ],
)
def test_what_is_no_copy_or_meets_otherwise_is_none(more: dict[str, Any]):
    assert not complete(trained({"a.w": own, "b.w": mean}, **more)).deviations


def test_copies_that_have_parted_before_contribute_otherwise():
    """Their first gradients are equal: what parts them is not this."""
    draw = np.random.default_rng(7)
    equal = draw.normal(size=8)

    def contributed(number: int, rank: int, _: int, __: str) -> Vector:
        return equal if number == 0 else np.random.default_rng(10 * number + rank).normal(size=8)

    assert not complete(trained({"a.w": own}, contributed=contributed)).deviations


def test_groups_that_leave_out_other_holders():
    found = deviation({"a.w": among((0, 1), (2, 3)), "b.w": mean}, ranks=4)
    assert (found.pattern, found.ground) == ("some", "joined")
    assert set(found.over) == {frozenset({0, 1}), frozenset({2, 3})}


def test_groups_across_those_with_copies():
    def began(rank: int, name: str) -> str:
        return f"{name}{rank % 2}"

    found = deviation({"a.w": among((0, 1), (2, 3))}, ranks=4, began=began)
    assert (found.pattern, set(found.holders)) == ("foreign", {frozenset({0, 2}), frozenset({1, 3})})


def test_an_owner_that_steps_on_its_own_for_all():
    found = deviation({"a.w": own}, owners={"a.w": 0})
    assert (found.pattern, found.over) == ("owner", [frozenset({0})])
    assert not complete(trained({"a.w": mean}, owners={"a.w": 0})).deviations


def test_a_sum_that_one_rank_alone_gets():
    def to_first(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector:
        return (own if rank else mean)(rank, name, of, before)

    found = deviation({"a.w": to_first, "b.w": mean})
    assert (found.pattern, found.over) == ("one", [frozenset({1})])


def test_steps_without_the_reduction():
    def seldom(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector:
        turns[rank] = turns.get(rank, 0) + 1
        return (own if turns[rank] % 2 else mean)(rank, name, of, before)

    def never_again(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector:
        turns[rank] = turns.get(rank, 0) + 1
        return (mean if turns[rank] < 4 else own)(rank, name, of, before)

    turns: dict[int, int] = {}
    assert not complete(trained({"a.w": never_again, "b.w": mean}, steps=6)).deviations
    turns.clear()
    found = deviation({"a.w": seldom, "b.w": mean}, steps=6)
    assert (found.pattern, found.windows, found.of) == ("skipped", [0, 2, 4], 6)


def test_steps_on_what_one_rank_alone_has():
    """A part that only some batches use is left out of the reduction where a rank has no gradient of it."""

    def contributed(number: int, rank: int, _: int, name: str) -> Vector:
        is_used = number % 2 or not rank or name == "b.w"
        return np.random.default_rng(100 * number + rank).normal(size=8) if is_used else np.zeros(8)

    def common(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector | None:
        used = [one for (_, _), one in of.items() if one.any()]
        return mean(rank, name, of, before) if len(used) > 1 else used[0] if not rank else None

    found = deviation({"a.w": common, "b.w": mean}, contributed=contributed, steps=6)
    assert (found.pattern, found.windows, found.of) == ("skipped", [0, 2, 4], 6)


def test_backwards_that_do_not_count():
    found = deviation({"a.w": last}, calls=3, parts=False, after=windows())
    assert (found.pattern, found.answer.lost, len(found.windows), found.of) == ("lost", frozenset({0, 1}), 4, 4)
    assert not complete(trained({"a.w": mean}, calls=3, parts=False)).deviations


def test_what_another_line_has_contributed_may_be_thrown_away():
    """As the loss of an attack on the inputs, or of a measurement."""
    found = complete(trained({"a.w": last}, calls=3, parts=False, sites=(6, 6, 7)))
    assert not found.deviations
    assert not found.several


def test_a_backward_that_something_else_is_stepped_on_counts():
    """As that of a generator's loss, which reaches its discriminator, too."""

    def first(_: int, __: str, of: Contributed, ___: Vector | None) -> Vector:
        return np.sum([one for (_, call), one in of.items() if call == 0], axis=0) / 2

    given = trained({"a.w": last, "b.w": first}, calls=2, parts=False, after=windows())
    assert not complete(given).deviations


def test_what_is_no_sum_may_be_made_of_any_backward():
    draw = np.random.default_rng(1)
    given = {"a.w": last, "b.w": lambda *_: draw.normal(size=8)}
    assert not complete(trained(given, calls=3, parts=False, after=windows())).deviations


def test_backwards_that_count_unequally():
    def halved(_: int, __: str, of: Contributed, ___: Vector | None) -> Vector:
        return np.sum([one * 0.5 ** (1 - call) for (_, call), one in of.items()], axis=0) / 2

    found = deviation({"a.w": halved}, calls=2, parts=False)
    assert (found.pattern, found.answer.weights) == ("unequal", (0.5, 1.0))


def test_what_nobody_zeroes():
    def kept(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector:
        return mean(rank, name, of, None) + (0 if before is None else before)

    found = deviation({"a.w": kept}, parts=False, steps=6, after=windows(leftover=True))
    assert (found.pattern, found.answer.earlier) == ("earlier", 1.0)
    assert not complete(trained({"a.w": kept}, parts=False, steps=6)).deviations  # such as a momentum of its own


def again(_: int, name: str, of: Contributed, before: Vector | None) -> Vector | None:
    """The mean; where there was no backward(), a clip of what was stepped on before."""
    return mean(_, name, of, before) if of else before * 0.3 if before is not None else None


def test_what_is_stepped_on_once_more():
    """Every second step is made on what the one before was made on, and no backward() comes between."""
    every_second = {"parts": False, "steps": 8, "idle": lambda number: number % 2 == 1}
    found = deviation({"a.w": again, "b.w": again}, **every_second)
    assert (found.pattern, found.windows, found.of, found.answer.earlier) == ("again", [1, 3, 5, 7], 8, 0.3)
    assert found.names == ["a.w", "b.w"]


@pytest.mark.parametrize("idle", [(), (3,), (1, 3)])
def test_a_step_once_more_now_and_then_may_be_meant(idle: Sequence[int]):
    given = trained({"a.w": again}, parts=False, steps=8, idle=lambda number: number in idle)
    assert not complete(given).deviations


def test_gradients_that_were_added_into_others():
    """Rank 1 has filled a bucket the other way round."""
    given = {(number, rank, name): np.random.default_rng([number, rank, len(name)]).normal(size=8)
             for number in range(4) for rank in range(2) for name in ("a.w", "bb.w")}  # fmt: skip
    other = {"a.w": "bb.w", "bb.w": "a.w"}
    number = iter([n for rank in range(2) for n in range(4) for _ in range(2)])

    def mixed(rank: int, name: str, _: Contributed, __: Vector | None) -> Vector:
        step = next(number)
        return (given[step, rank, name] + given[step, 1 - rank, other[name]]) / 2

    found = deviation(
        dict.fromkeys(("a.w", "bb.w"), mixed), parts=True, contributed=lambda n, rank, _, name: given[n, rank, name]
    )
    assert (found.pattern, found.names) == ("crossed", ["a.w", "bb.w"])
    assert found.answer.crossed == ((1, 1),)


def test_tensors_of_other_shapes_are_not_mixed():
    """Their sums cannot be told from noise."""
    draw = np.random.default_rng(4)
    given = dict.fromkeys(("a.w", "bb.w"), lambda rank, name, of, _: mean(rank, name, of, None) + draw.normal(size=8))
    assert not complete(trained(given, elements={"a.w": 64, "bb.w": 32})).deviations


def test_one_tensor_alone_is_not_mixed():
    """What it has of another tensor would be missing there: a sum that fits may be chance."""
    given = {(number, rank, name): np.random.default_rng([number, rank, len(name)]).normal(size=8)
             for number in range(4) for rank in range(2) for name in ("a.w", "bb.w")}  # fmt: skip
    number = iter([n for rank in range(2) for n in range(4) for _ in range(2)])

    def mixed(rank: int, name: str, _: Contributed, __: Vector | None) -> Vector:
        step = next(number)
        return (given[step, 0, name] + given[step, 1, "bb.w"]) / 2

    world = trained(dict.fromkeys(("a.w", "bb.w"), mixed), contributed=lambda n, rank, _, name: given[n, rank, name])
    assert not complete(world).deviations
