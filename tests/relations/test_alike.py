"""Elements of the loss that count otherwise than others, from evidence that is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pytest

from ddpcheck.facts import weights
from ddpcheck.relations.alike import NOTHING_COUNTS, WEIGHTED, Alikeness, Deviation, Pattern, alikeness, whole
from tests.facts.losses import Elements, losses
from tests.facts.trained import Stepped, Vector, mean, own, trained


def alike(
    given: Callable[[int, int, int], Elements | Sequence[Elements]],
    stepped: Stepped = mean,
    *,
    calls: int = 1,
    steps: int = 4,
    ranks: int = 2,
    sizes: Collection[int] = (2,),
    **more: Any,
) -> Alikeness:
    made = losses(given, calls=calls, steps=steps, **more)
    (found,) = weights.of(trained({"a": stepped, "b": stepped}, calls=calls, steps=steps, ranks=ranks, more=made))
    return alikeness([found], dict.fromkeys(sizes, ()))


def patterns(*args: Any, **more: Any) -> set[Pattern]:
    return {one.pattern for one in alike(*args, **more).deviations}


def deviation(*args: Any, **more: Any) -> Deviation:
    (found,) = alike(*args, **more).deviations
    return found


def own_mean(rank: int, step: int, call: int) -> Elements:
    elements = 4 + rank + (step + call) % 3
    return elements, 1 / elements


def test_one_weight_for_all_is_held():
    found = alike(lambda rank, *_: (4 + rank, 2 / 9))
    assert (found.deviations, len(found.windows), found.whys) == ([], 4, [])


def test_means_of_each_rank():
    found = deviation(own_mean)
    assert (found.pattern, found.heavy.rank, found.light.rank, found.steps) == ("ranks", 0, 1, [0, 1, 2, 3])


def test_a_sum_that_the_ranks_weigh_by_their_elements():
    """They count the same in the end."""

    def stepped(_: int, __: str, of: Any, ___: Vector | None) -> Vector:
        return np.asarray((4 * of[0, 0] + 5 * of[1, 0]) / 9)

    assert patterns(lambda rank, *_: (4 + rank, 1 / (4 + rank)), stepped) == set()


def test_means_of_each_micro_batch():
    def given(_: int, __: int, call: int) -> Elements:
        return 4 + call, 1 / (4 + call) / 2

    assert patterns(given, calls=2) == {"calls"}


def test_weights_that_are_no_means_are_not_compared():
    found = alike(lambda rank, *_: (4, 1 / 4 + rank))
    assert (found.deviations, found.windows, set(found.whys)) == ([], set(), {WEIGHTED})


def test_a_loss_that_one_backward_alone_has_is_not_compared():
    found = alike(lambda rank, *_: (4 * (1 - rank), 1 / 4))
    assert (found.windows, set(found.whys)) == (set(), {NOTHING_COUNTS})


def test_one_part_of_two_by_its_own_elements():
    def given(rank: int, *_: int) -> list[Elements]:
        return [(4 + rank, 2 / 9), (7 + rank, 1 / (7 + rank))]

    found = deviation(given)
    assert (found.pattern, found.part.place) == ("part", 1)


def test_micro_batches_that_are_added_up():
    assert patterns(lambda *_: (4, 1 / 4), calls=3, sizes=(2, 3)) == {"added"}
    assert patterns(lambda *_: (4, 1 / 12), calls=3, sizes=(2, 3)) == set()


def test_losses_of_one_batch_are_no_micro_batches():
    assert patterns(lambda *_: (4, 1 / 4), calls=3, sizes=(2, 4), fresh=False) == set()


@pytest.mark.parametrize("times", [2, 1 / 2])
def test_a_factor_that_is_the_size_of_a_group(times: float):
    found = deviation(lambda rank, *_: (4 + rank, times * 2 / 9))
    assert (found.pattern, found.size) == ("scaled", pytest.approx(times))
    assert patterns(lambda rank, *_: (4 + rank, times * 2 / 9), sizes=(3,)) == set()
    assert patterns(lambda rank, step, _: (4 + rank, times * (2 + step) / 9)) == set()


def test_the_last_window_of_a_pass():
    def given(_: int, step: int, call: int) -> Elements:
        return (4, 1 / 8) if step < 3 or not call else (0, 0.0)

    whole_windows = losses(lambda *_: (4, 1 / 8), calls=2, steps=3)
    last = losses(lambda *_: (4, 1 / 8), calls=1, steps=1)

    def made(rank: int) -> list[Any]:
        return [*whole_windows(rank), *[(kind, {**f, "backward": 7, "value": 99.0 + rank}) for kind, f in last(rank)]]

    def contributed(number: int, rank: int, call: int, name: str) -> Vector:
        drawn = np.random.default_rng([number, rank, call, ord(name)]).normal(size=8)
        return drawn * 0 if number == 3 and call else drawn

    (found,) = weights.of(trained({"a": mean, "b": mean}, calls=2, contributed=contributed, more=made))
    (short,) = alikeness([found], {2: ()}).deviations
    assert (short.pattern, short.steps, short.size) == ("short", [3], 2)


def test_a_window_of_which_a_micro_batch_was_thrown_away_is_a_short_one():
    def stepped(_: int, __: str, of: Any, before: Vector | None) -> Vector:
        return np.sum([one for (_, call), one in of.items() if call or before is not None], axis=0) / 2

    found = deviation(lambda *_: (4, 1 / 12), stepped, calls=3)
    assert (found.pattern, found.steps, found.size) == ("short", [0], 3)


def test_windows_that_are_divided_by_one_micro_batch():
    def elements(step: int, call: int) -> int:
        return 4 + (step + call) % 3 + call

    def given(_: int, step: int, call: int) -> Elements:
        return elements(step, call), 1 / elements(step, 1)

    found = deviation(given, calls=2)
    assert (found.pattern, found.size) == ("one call", 1)


def test_a_sum_that_nothing_divides():
    def stepped(_: int, __: str, of: Any, ___: Vector | None) -> Vector:
        return np.sum(list(of.values()), axis=0)

    assert patterns(lambda rank, step, _: (4 + rank + step, 1.0), stepped) == {"sum"}


def test_a_part_that_lacks_a_factor():
    def given(rank: int, *_: int) -> list[Elements]:
        return [(4 + rank, 2 / 9), (3 + rank, 0.5 / 7)]

    def term(place: int) -> dict[str, Any]:
        return {"scales": [0.5, 2.0] if place == 0 else [0.5]}

    found = deviation(given, term=term)
    assert (found.pattern, found.part.place, found.size) == ("lacking", 1, 2)


@pytest.mark.parametrize(("value", "number"), [(2, 2), (0.25, 4), (1, None), (2.5, None), (0, None), (np.inf, None)])
def test_a_number_that_is_whole_or_one_over_a_whole_one(value: float, number: int | None):
    assert whole(value) == number


def test_a_plain_sum_of_as_many_elements_as_there_are_ranks_is_no_factor():
    assert patterns(lambda *_: (2, 1.0)) == set()


def test_means_by_chance_are_no_means():
    """A program that weighs ranks by something else may weigh them as means do, now and then."""

    def given(rank: int, step: int, _: int) -> Elements:
        elements = 4 + rank
        return elements, (1 if step < 2 else 1 + rank) / elements

    found = alike(given)
    assert (found.deviations, set(found.whys)) == ([], {WEIGHTED})


def one_apart(times: float, elements: Callable[[int], int]) -> Alikeness:
    def stepped(_: int, __: str, of: Any, ___: Vector | None) -> Vector:
        return np.sum(list(of.values()), axis=0) / 2 * times

    every = elements(0) + elements(1)
    made = losses(lambda rank, *_: (elements(rank), 2 / every))
    (found,) = weights.of(trained({"a": stepped, "b": mean}, more=made))
    return alikeness([found], {2: ()})


@pytest.mark.parametrize(("own", "pattern"), [(4, "factor"), (5, "tensors")])
def test_a_tensor_that_learns_half_as_fast_says_nothing_of_the_loss(own: int, pattern: Pattern):
    """It may be meant, but where each rank divides by the elements of all."""
    found = one_apart(0.5, lambda rank: own if rank else 4)
    assert [(one.pattern, one.names, one.size) for one in found.deviations] == [(pattern, ["a"], pytest.approx(0.5))]
    assert (found.windows == set()) == (pattern == "factor")
    assert one_apart(0.7, lambda rank: own if rank else 4).deviations == []


def test_tensors_of_two_optimizers_are_compared():
    """A loss that is half of the mean in one alone is no loss that is half of it."""

    def halved(_: int, __: str, of: Any, ___: Vector | None) -> Vector:
        return np.sum(list(of.values()), axis=0) / 4

    each = []
    for stepped in (mean, halved):
        (found,) = weights.of(trained({"a": stepped}, more=losses(lambda rank, *_: (4 + rank, 2 / 9))))
        each.append(found)
    assert {one.pattern for one in alikeness(each, {2: ()}).deviations} == {"tensors"}
    assert {one.pattern for one in alikeness(each[1:], {2: ()}).deviations} == {"scaled"}


def test_a_factor_where_all_ranks_have_equally_many_may_be_meant():
    assert patterns(lambda *_: (4, 1 / 8)) == {"times"}


def test_means_of_groups_of_ranks():
    """Each group divides by the elements that its ranks have together."""
    numbers = (3, 5, 6, 8)

    def given(rank: int, *_: int) -> Elements:
        return numbers[rank], 1 / (numbers[rank % 2] + numbers[rank % 2 + 2])

    pairs = {2: [frozenset({0, 2}), frozenset({1, 3})]}
    (found,) = weights.of(trained({"a": mean, "b": mean}, ranks=4, more=losses(given)))
    assert {one.pattern for one in alikeness([found], pairs).deviations} == {"groups"}
    for others in ({2: [frozenset({0, 1}), frozenset({2, 3})]}, {2: [frozenset({0, 2})]}, {}):
        assert alikeness([found], others).deviations == []


def test_copies_that_are_in_no_sum_have_no_total():
    """Ranks that step on what is their own: whether that is right is no question of weights."""
    made = losses(lambda *_: (4, 2 / 4))
    (found,) = weights.of(trained({"a": own, "b": own}, parts=False, more=made))
    assert alikeness([found], {2: ()}).deviations == []


def test_a_batch_that_some_ranks_read_and_others_do_not():
    """It counts as often as it was read: that is a question of samples."""

    def contributed(number: int, rank: int, call: int, name: str) -> Vector:
        return np.random.default_rng([number, min(rank, 1), call, ord(name)]).normal(size=8)

    def value(rank: int, step: int, call: int) -> float:
        return 1.0 + min(rank, 1) + 10 * step

    made = losses(lambda *_: (4, 1 / 4), value=value)
    (found,) = weights.of(trained({"a": mean, "b": mean}, ranks=3, contributed=contributed, more=made))
    assert {one.sharers for each in found.windows for one in each[0].parts[0].batches} == {1, 2}
    assert alikeness([found], {3: ()}).deviations == []


def test_a_step_is_compared_where_all_of_it_was():
    each = []
    for continued in (False, True):
        given = losses(lambda rank, *_: (4 + rank, 2 / 9), continued=continued)
        (found,) = weights.of(trained({"a": mean}, more=given))
        each.append(found)
    assert len(alikeness(each[:1], {2: ()}).windows) == 4
    assert alikeness(each, {2: ()}).windows == set()
