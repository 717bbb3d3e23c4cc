"""What steps are made of, worked out from evidence that is written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ddpcheck.facts import reductions
from ddpcheck.facts.reductions import Answer, Family
from ddpcheck.judging.world import World
from tests.facts.trained import Contributed, Vector, among, mean, own, trained


def family(given: World) -> Family:
    (found,) = reductions.of(given)
    return found


def answers(given: World, path: str = "a.w") -> list[Answer]:
    """What is known of one tensor, window by window and rank by rank."""
    found = family(given)
    place = next(n for n, tensor in enumerate(found.tensors) if tensor.path == path)
    return [sums.answers[made.answer] for sums in found.windows for (_, at), made in sums.by.items() if at == place]


def unknown(given: World) -> set[str]:
    return {why for sums in family(given).windows for why in sums.unknown.values()}


def test_a_mean_is_the_sum_of_all_ranks():
    given = trained({"a.w": mean, "b.w": mean})
    assert set(answers(given)) == {Answer(frozenset({0, 1}), frozenset())}
    assert {round(made.factor, 6) for sums in family(given).windows for made in sums.by.values()} == {0.5}


def test_a_rank_that_is_left_out_is_named():
    given = trained({"a.w": own, "b.w": mean})
    assert answers(given)[:2] == [
        Answer(frozenset({0}), frozenset({1})),
        Answer(frozenset({1}), frozenset({0})),
    ]
    assert set(answers(given, "b.w")) == {Answer(frozenset({0, 1}), frozenset())}


def test_groups_of_the_programs_own_are_found_by_a_number_for_each_rank():
    """No collective says which ranks they are."""
    given = trained({"a.w": among((0, 2), (1, 3)), "b.w": among((0, 2), (1, 3))}, ranks=4)
    assert {one.over for one in answers(given)} == {frozenset({0, 2}), frozenset({1, 3})}
    assert {one.without for one in answers(given)} == {frozenset({0, 2}), frozenset({1, 3})}


def test_equal_contributions_cannot_be_told_apart():
    """As of ranks that read one batch: whether they are averaged is not known."""
    draw = {number: np.random.default_rng(number).normal(size=8) for number in range(9)}
    given = trained({"a.w": own}, contributed=lambda number, _, __, ___: draw[number])
    assert not answers(given)
    assert unknown(given) == {"ranks have contributed alike"}


@pytest.mark.parametrize("steady", [True, False])
def test_two_elements_fit_by_chance(steady: bool):
    """A sum that two numbers alone speak for is one if another step bears it out."""

    def summed(_: int, __: str, of: Contributed, before: Vector | None) -> Vector:
        factor = 0.5 if steady or before is None else 0.5 + 0.01 * np.abs(before).sum()
        return np.asarray(np.sum(list(of.values()), axis=0) * factor)

    given = family(trained({"a": summed}, elements=2))
    assert [len(sums.by) for sums in given.windows] == [2 if steady else 0] * 4


def test_one_element_alone_fits_any_sum():
    given = trained({"a.w": mean, "b.w": mean}, elements=1)
    assert not answers(given)
    assert unknown(given) == {"ranks have contributed alike"}


def test_a_backward_that_does_not_count_is_found():
    def last(_: int, __: str, of: Contributed, ___: Vector | None) -> Vector:
        return np.sum([one for (_, call), one in of.items() if call == 2], axis=0) / 2

    given = trained({"a.w": last, "b.w": last}, calls=3)
    assert {one.lost for one in answers(given)} == {frozenset({0, 1})}
    assert {one.over for one in answers(given)} == {frozenset({0, 1})}


def test_backwards_that_count_unequally_are_weighed():
    def halved(_: int, __: str, of: Contributed, ___: Vector | None) -> Vector:
        return np.sum([one * 0.5 ** (2 - call) for (_, call), one in of.items()], axis=0) / 2

    given = trained({"a.w": halved, "b.w": halved}, calls=3)
    assert {one.weights for one in answers(given)} == {(0.25, 0.5, 1.0)}
    assert {one.lost for one in answers(given)} == {frozenset()}


def test_the_gradient_of_the_step_before_is_found():
    def kept(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector:
        return mean(rank, name, of, None) + (0 if before is None else before)

    given = trained({"a.w": kept, "b.w": kept})
    assert {one.earlier for one in answers(given)[2:]} == {1.0}


def test_few_elements_cannot_say_which_of_several_backwards_count():
    def last(_: int, __: str, of: Contributed, ___: Vector | None) -> Vector:
        return np.sum([one for (_, call), one in of.items() if call == 2], axis=0) / 2

    assert unknown(trained({"a.w": last}, calls=3, elements=2)) == {"more unknowns than numbers"}


def test_noise_is_no_sum():
    draw = np.random.default_rng(5)
    given = trained({"a.w": lambda rank, name, of, before: mean(rank, name, of, before) + draw.normal(size=8)})
    assert not answers(given)
    assert unknown(given) == {"no sum of contributions fits"}


def test_rounding_of_sixteen_bits_is_none():
    def rounded(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector:
        return mean(rank, name, of, before) * (1 + 0.002 * np.random.default_rng(rank).normal(size=8))

    assert unknown(trained({"a.w": rounded}, steps=1)) == {"no sum of contributions fits"}
    given = trained({"a.w": rounded}, steps=1, piece={"dtype": "bfloat16"})
    assert {one.over for one in answers(given)} == {frozenset({0, 1})}


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_contributions_that_are_not_finite_tell_nothing(value: float):
    given = trained(
        {"a.w": mean}, contributed=lambda number, rank, _, __: np.full(8, value if rank == number == 0 else rank + 1.0)
    )
    first = family(given).windows[0]
    assert not first.by
    assert set(first.unknown.values()) <= {
        "a contribution is not finite", "no gradient at the step, or one that is not finite",
    }  # fmt: skip


def test_zeros_tell_nothing():
    assert unknown(trained({"b.w": lambda *_: np.zeros(8)})) == {"nothing but zeros"}


def test_a_rank_without_a_gradient_has_no_share_in_what_others_contribute():
    given = trained({"a.w": lambda rank, *given: None if rank else own(rank, *given)})
    assert answers(given)[:2] == [
        Answer(frozenset({0}), frozenset({1})),
        Answer(frozenset(), frozenset({0, 1})),
    ]


def test_a_tensor_is_that_of_its_name_whatever_its_place():
    """Each rank steps another one, of those that all contribute to."""
    given = trained({"a.w": mean, "b.w": mean}, owners={"a.w": 0, "b.w": 1})
    assert {one.over for path in ("a.w", "b.w") for one in answers(given, path)} == {frozenset({0, 1})}


@pytest.mark.parametrize(("elements", "dtype"), [(3, "bfloat16"), (4, "bfloat16"), (3, "float16")])
def test_many_tensors_of_one_shape_are_not_mixed_by_chance(elements: int, dtype: str):
    """Gradients that are no sum: of so many ways to mix tensors some fit nearly, where few elements speak."""
    draw = np.random.default_rng(6)
    signs = draw.choice([-1.0, 1.0], size=(8, elements))

    def few() -> Vector:
        return np.asarray(signs @ draw.normal(size=elements))

    noise = {f"{n}.w": lambda rank, name, of, _: mean(rank, name, of, None) + few() for n in range(24)}
    given = trained(noise, elements=elements, piece={"dtype": dtype}, steps=6, contributed=lambda *_: few())
    windows = [one for its in reductions.of(given) for one in its.windows]
    assert not any(answer.crossed for one in windows for answer in one.answers)
