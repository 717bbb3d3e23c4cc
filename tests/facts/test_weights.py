"""What each element of a loss counts in a step, from evidence that is written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.facts import weights
from ddpcheck.facts.weights import Weighed
from tests.facts.losses import losses
from tests.facts.trained import Stepped, Vector, mean, own, trained
from tests.judging.written import call


def first(stepped: Stepped = mean, **more: Any) -> Weighed:
    """What counts in the first step."""
    (family,) = weights.of(trained({"a": stepped, "b": stepped}, **more))
    (found,) = family.windows[0]
    return found


def totals(weighed: Weighed) -> dict[tuple[int, int], float]:
    (part,) = weighed.parts
    return {(one.rank, one.turn): one.total for one in part.batches}


def test_a_mean_of_each_rank_under_a_mean_over_ranks():
    found = first(more=losses(lambda rank, *_: (4 + rank, 1 / (4 + rank))))
    assert totals(found) == pytest.approx({(0, 0): 0.5, (1, 0): 0.5})
    assert (found.over, found.why, found.are_batches_known) == (frozenset({0, 1}), "", True)


def test_what_each_micro_batch_counts():
    found = first(calls=3, more=losses(lambda *_: (5, 1 / 5), calls=3))
    assert totals(found) == pytest.approx({(rank, turn): 0.5 for rank in range(2) for turn in range(3)})
    assert found.parts[0].accumulates


@pytest.mark.parametrize("ranks", [0, 1, 2])
def test_no_sync_says_that_micro_batches_are_several(ranks: int):
    """Without a loader; where it says so on all ranks."""

    def usage(rank: int) -> list[ev.Usage]:
        return [ev.Usage(wrapper=0, no_sync=int(rank < ranks))]

    found = first(calls=3, usage=usage, more=losses(lambda *_: (5, 1 / 5), calls=3, fresh=False))
    assert found.parts[0].accumulates == (ranks == 2)


def test_ranks_that_the_program_weighs_itself():
    def summed(_: int, __: str, of: Any, ___: Vector | None) -> Vector:
        return np.asarray(0.25 * of[0, 0] + 0.75 * of[1, 0])

    found = first(summed, more=losses(lambda rank, *_: (1 + 2 * rank, 1 / (1 + 2 * rank))))
    assert totals(found) == pytest.approx({(0, 0): 0.25, (1, 0): 0.75})


def same(number: int, _: int, call: int, name: str) -> Vector:
    """What every rank contributes alike."""
    return np.random.default_rng([number, call, ord(name)]).normal(size=NUMBERS)


def of_one_batch(_: int, step: int, call: int) -> float:
    return 1.0 + step + call


def parts_of_one(rank: int, _: str, of: Any, __: Vector | None) -> Vector:
    return np.sum(list(of.values()), axis=0)


@pytest.mark.parametrize(("detail", "total"), [("float32[16, 4]", 1), ("float32[1]", 2)])
def test_ranks_that_share_a_batch_and_contribute_parts_of_its_gradient(detail: str, total: int):
    """All together count its elements once; where they give each other a loss alone, it was averaged over batches."""
    given = losses(lambda *_: (4, 1 / 4), value=of_one_batch)
    found = first(parts_of_one, more=given, after=lambda _: [call(1, 5, "all_reduce", detail=detail)])
    assert sum(totals(found).values()) == pytest.approx(total)
    assert [one.weight for one in found.parts[0].batches] == pytest.approx([1 / 4] * 2)


def test_where_only_one_rank_of_those_that_share_a_batch_counts():
    (family,) = weights.of(trained({"a": own, "b": own}, more=losses(lambda *_: (4, 1 / 4), value=of_one_batch)))
    assert all(sum(totals(one).values()) == pytest.approx(1) for one in family.windows[0])


@pytest.mark.parametrize("value", [None, 3.0])
def test_whether_a_batch_is_shared_is_known_by_the_values_of_losses(value: float | None):
    found = first(more=losses(lambda *_: (4, 1 / 4), value=lambda *_: value))
    assert found.are_batches_known == (value is not None)


def test_a_loss_that_could_not_be_taken_apart_is_told():
    found = first(more=losses(lambda *_: (4, 1 / 4), why="it is a root"))
    assert (found.parts, found.why) == ([], "it is a root")


def test_a_loss_that_nobody_has_looked_at():
    assert first().why == "not every loss of the step was looked at"


def test_a_loss_with_other_parts_on_one_rank_is_not_compared():
    found = first(more=losses(lambda rank, *_: [(4, 1 / 4)] * (1 + rank)))
    assert found.parts == []
    assert "the same parts" in found.why


def test_a_backward_that_reaches_none_of_the_tensors_has_no_loss_in_their_step():
    def contributed(number: int, rank: int, call: int, name: str) -> Vector:
        return np.zeros(NUMBERS) if call else same(number, rank, call, name) + rank

    found = first(calls=2, contributed=contributed, more=losses(lambda _, __, call: (4 + call, 1.0), calls=2))
    assert {one.term.elements for one in found.parts[0].batches} == {4}


# --- losses of other ranks


def of_own_copies(within: Any = lambda _: (), **more: Any) -> Weighed:
    """What counts in the first step of rank 0, which steps on what it has contributed itself."""
    given = losses(lambda *_: (4, 1 / 4), **more)
    (family,) = weights.of(trained({"a": own, "b": own}, within=within, more=given))
    return next(one for one in family.windows[0] if one.ranks == {0})


def ranks_of(weighed: Weighed) -> set[int]:
    return {batch.rank for part in weighed.parts for batch in part.batches}


@pytest.mark.parametrize("op", ["all_to_all_single", "all_gather"])
def test_a_tensor_that_others_losses_come_to_within_backward(op: str):
    """As those of tokens that other ranks have sent to an expert."""
    assert ranks_of(of_own_copies(lambda _: [(op, "world", None)])) == {0, 1}
    assert ranks_of(of_own_copies()) == {0}


def test_what_is_sent_to_one_rank_comes_to_no_other():
    def within(rank: int) -> list[tuple[str, str, int | None]]:
        return [("isend", "world", 1 - rank)]

    assert ranks_of(of_own_copies(within)) == {0, 1}
    assert ranks_of(of_own_copies(lambda rank: [("isend", "world", rank)])) == {0}


def test_gradients_of_several_batches_that_are_added_up_on_their_way():
    """They are those of all of these losses."""
    assert ranks_of(of_own_copies(lambda _: [("all_reduce", "world", None)])) == {0, 1}


@pytest.mark.parametrize(("op", "why"), [("all_reduce", weights.ADDED), ("functional.all_reduce", "")])
def test_gradients_of_one_batch_that_are_added_up_on_their_way(op: str, why: str):
    """Copies of one loss, each with a part of the gradient, or all with the same: DTensor says which."""
    assert of_own_copies(lambda _: [(op, "world", None)], value=of_one_batch).why == why


def test_a_backward_that_goes_on_with_what_the_program_has_brought_there():
    found = of_own_copies(continued=True)
    assert (found.parts, found.why) == ([], weights.CONTINUED)


def test_what_was_thrown_away_counts_nothing():
    def last(_: int, __: str, of: Any, ___: Vector | None) -> Vector:
        return np.asarray((of[0, 1] + of[1, 1]) / 2)

    found = first(last, calls=2, more=losses(lambda *_: (4, 1 / 4), calls=2))
    assert {turn: {one.weight for one in found.parts[0].batches if one.turn == turn} == {0} for turn in (0, 1)} == {
        0: True,
        1: False,
    }
