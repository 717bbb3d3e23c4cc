"""The first number that is not finite, from evidence that is written by hand, and what finite-values says of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.finite_values.run import judge
from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.facts import finite
from tests.facts.trained import Contributed, Vector, mean, trained
from tests.judging.written import Made, step

NAN = np.full(NUMBERS, np.nan)
ONES = np.ones(NUMBERS)
LINE = 12


def unlike(backward: int, times: int = 1, **more: Any) -> ev.NotFinite:
    """Losses that are NaN from this backward() on, each with a step of its own."""
    given = {
        "is_nan": True,
        "origin": "unseen",
        "module": "",
        "kind": "",
        "given_infinite": False,
        "optimizer": 0,
        "number": backward - 1,
        "kept": True,
        **more,
    }
    return ev.NotFinite(site=LINE, backward=backward, times=times, **given)


def losses(*of_rank: ev.NotFinite, steps: int = 4, met: int | None = None) -> list[Made]:
    lost = sum(one.times for one in of_rank)
    return [
        (
            ev.Losses,
            {
                "met": met or steps,
                "finite": steps - lost,
                "lost": lost,
                "last_finite": steps - lost,
                "unlike": list(of_rank),
            },
        )
    ]


def all_finite(_: int) -> list[Made]:
    return losses()


def of_rank_1(*of_rank: ev.NotFinite, **more: Any) -> Any:
    """Losses of two ranks, of which rank 1 has these."""
    return lambda rank: losses(*of_rank, **more) if rank == 1 else losses()


def from_step(first: int, at_start: bool, end: int = 99) -> Any:
    """Copies that are not finite from some step on: at its start, or when it is over."""

    def copies(_: int, number: int, name: str) -> tuple[Vector, Vector]:
        begins = NAN if first + (not at_start) <= number < end and name == "b" else ONES + number
        return begins, NAN if first <= number < end and name == "b" else ONES + number

    return copies


def judged(after: Any = all_finite, **given: Any) -> Any:
    return judge(trained({"a": mean, "b": mean}, after=after, **{"copies": from_step(99, True), **given}))


def test_all_is_finite() -> None:
    result = judged()
    assert (result.checked, result.of, result.findings) == (8, 8, ())


def test_no_loss_was_seen() -> None:
    result = judged(after=lambda _: [])
    assert not result.checked
    assert "no backward()" in result.skipped_because


@pytest.mark.parametrize(
    ("origin", "found", "cause"),
    [
        ("input", "what the model was called with had NaN in it", "missing in the batch"),
        ("module", "was made by drop (Dropout)", "an operation of drop (Dropout)"),
        ("later", "what modules of the model returned was finite", "as that of the loss"),
        ("unseen", "NaN on rank 1 (finite on rank 0), and so is every loss of this line since (2 losses)", "not known"),
    ],
)
def test_losses_of_one_rank(origin: str, found: str, cause: str) -> None:
    more = {"origin": origin, "module": "drop", "kind": "Dropout"}
    result = judged(of_rank_1(unlike(3, 2, **more)), looked=lambda _, number: number < 2)
    (one,) = result.findings
    assert (one.rule, one.severity, one.ranks, one.step, one.where.line) == ("loss-not-finite", "error", (1,), 2, LINE)
    assert found in one.found
    assert cause in one.cause
    assert result.checked >= one.count == 2


def test_a_module_that_was_called_with_infinite_numbers() -> None:
    (one,) = judged(of_rank_1(unlike(3, origin="module", module="b", kind="Linear", given_infinite=True))).findings
    assert one.cause.startswith("an operation of b (Linear), which was called with infinite numbers: ")


def test_an_infinite_loss() -> None:
    (one,) = judged(of_rank_1(unlike(3, 2, is_nan=False)), looked=lambda _, number: number < 2).findings
    assert one.found.startswith("infinite on rank 1")


def test_a_step_on_a_loss_that_leaves_the_parameters_finite() -> None:
    """As one of a scaler that skips it, which is the last one of the run."""
    assert not judged(of_rank_1(unlike(4, kept=None))).findings


def test_losses_after_which_no_parameter_was_looked_at() -> None:
    (one,) = judged(of_rank_1(unlike(4, 2, kept=None)), looked=lambda _, number: number < 2).findings
    assert one.severity == "warning"


def test_losses_that_are_not_finite_although_parameters_stay_so() -> None:
    assert not judged(of_rank_1(unlike(2, 3, kept=None))).findings


def contributed(number: int, rank: int, _: int, name: str) -> Vector:
    return NAN if (number, rank, name) == (2, 1, "b") else ONES * (1 + number + rank)


def test_a_gradient_of_one_rank() -> None:
    (one,) = judged(contributed=contributed, copies=from_step(2, False)).findings
    assert (one.rule, one.ranks, one.step, one.subject) == ("gradient-not-finite", (1,), 2, "b")
    assert (
        one.found == "1 of 2 gradients not finite on rank 1 (finite on rank 0), before they were reduced: b; finite: a"
    )
    assert "derivative" in one.cause


def test_a_gradient_beside_a_loss_that_is_not_known() -> None:
    given = {"contributed": contributed, "copies": from_step(2, False)}
    (one,) = judged(of_rank_1(met=5), **given).findings
    assert "not known" in one.cause


def test_a_gradient_that_the_program_spoils() -> None:
    def spoiled(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector | None:
        found = mean(rank, name, of, before)
        return NAN if name == "b" and before is not None else found

    world = trained({"a": mean, "b": spoiled}, after=all_finite, copies=from_step(1, False))
    (one,) = judge(world).findings
    assert (one.rule, one.ranks, one.step) == ("gradient-not-finite", (0, 1), 1)
    assert "finite as backward() has made them" in one.found


def test_a_parameter_that_the_step_spoils() -> None:
    (one,) = judged(copies=from_step(1, False)).findings
    assert (one.rule, one.ranks, one.step, one.subject) == ("parameter-not-finite", (0, 1), 1, "b")
    assert "after a step on finite gradients: b; finite: a" in one.found


def test_a_parameter_that_is_written_to_between_steps() -> None:
    """The first loss that is computed with it is not finite either."""
    (one,) = judged(lambda _: losses(unlike(3, 2)), copies=from_step(2, True)).findings
    assert (one.rule, one.step, one.subject) == ("parameter-not-finite", 2, "b")
    assert "at the first forward of the step, and finite after the step before: b; finite: a" in one.found


def test_a_parameter_that_has_begun_so() -> None:
    """It lies in uninitialised memory. The losses are not finite either, so it is no mask."""
    (one,) = judged(lambda _: losses(unlike(1, 4)), copies=from_step(0, True)).findings
    assert (one.rule, one.step, one.ranks, one.subject) == ("parameter-not-finite", 0, (0, 1), "b")
    assert "memory that nothing has filled" in one.cause


def test_a_parameter_that_is_infinite_by_right_on_all_ranks() -> None:
    """Rank 0 has it as well, with losses that are finite."""
    (one,) = judged(of_rank_1(unlike(1, 4, origin="input")), copies=from_step(0, True)).findings
    assert (one.rule, one.ranks) == ("loss-not-finite", (1,))


def test_a_parameter_after_a_step_that_was_not_looked_at() -> None:
    given = {"copies": from_step(1, False), "looked": lambda _, number: number != 1}
    (one,) = judged(lambda _: losses(unlike(3, 2)), **given).findings
    assert (one.rule, one.step) == ("parameter-not-finite", 2)
    assert "not known" in one.cause


def rated(rank: int) -> list[Made]:
    """A step at a learning rate that is not finite, after those that are written before."""
    return [*losses(unlike(6), steps=6), step(9, number=4, rates=[0.1, math.nan], parameters=b"")]


def test_a_learning_rate_that_is_not_finite() -> None:
    (one,) = judged(rated).findings
    assert (one.rule, one.step, one.ranks) == ("parameter-not-finite", 4, (0, 1))
    assert "a learning rate that is NaN on ranks 0 and 1" in one.found
    assert "the schedule" in one.cause


def test_a_parameter_that_became_so_in_a_step_that_was_not_looked_at() -> None:
    (one,) = judged(copies=from_step(1, False), looked=lambda _, number: number != 1).findings
    assert (one.rule, one.step) == ("parameter-not-finite", 2)
    assert "by this step at the latest" in one.found
    assert "not known" in one.cause


def test_a_parameter_that_has_never_been_finite() -> None:
    """As one that masks by numbers below all others."""
    assert not judged(copies=from_step(0, True)).findings


def test_a_parameter_that_is_finite_again() -> None:
    """As one that a program takes back to what it was."""
    assert not judged(copies=from_step(1, False, end=3)).findings


def test_what_follows_from_the_first_is_not_counted() -> None:
    """A gradient of rank 1 spoils the parameters, and these every loss."""
    each = [unlike(4), unlike(4)]
    given = {"contributed": contributed, "copies": from_step(2, False)}
    found = finite.of(trained({"a": mean, "b": mean}, after=lambda rank: losses(each[rank]), **given)).first
    assert found is not None
    assert (found.moment, found.number) == ("contribution", 2)
