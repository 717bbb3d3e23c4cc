"""What is said of elements of a loss that count otherwise than others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ddpcheck.checks.token_weight import CHECK
from ddpcheck.checks.token_weight.run import ROWS, UNSEEN, judge
from ddpcheck.judging.world import Judged
from ddpcheck.vocabulary.model import Finding
from tests.facts.losses import LINE, losses
from tests.facts.trained import Stepped, Vector, mean, trained


def judged(given: Any, stepped: Stepped = mean, calls: int = 1, **more: Any) -> Judged:
    made = losses(given, calls=calls, **more)
    return judge(trained({"a": stepped, "b": stepped}, calls=calls, more=made))


def finding(*args: Any, **more: Any) -> Finding:
    (found,) = judged(*args, **more).findings
    return found


def test_every_rule_has_a_row():
    assert {row.rule for row in ROWS} == {rule.name for rule in CHECK.rules}


def test_a_mean_over_each_ranks_own():
    """It is a warning, at the line of the backward()."""
    found = finding(lambda rank, *_: (4 + 2 * rank, 1 / (4 + 2 * rank)))
    assert (found.rule, found.severity, found.ranks) == ("unequal-rank-weights", "warning", (0, 1))
    assert (found.where.line if found.where else 0, found.count, found.subject) == (LINE, 4, "the loss (NllLoss)")
    assert found.found == (
        "each of the 4 elements of rank 0 in backward 1 of the step to count 1.5 times as much as each of the 6 "
        "elements of rank 1 in backward 1 of the step"
    )


def test_one_weight_for_all():
    found = judged(lambda rank, *_: (4 + rank, 2 / 9))
    assert (found.checked, found.findings) == (4, ())


def test_the_size_that_a_loss_is_off_by_is_named():
    found = finding(lambda rank, *_: (4 + rank, 1 / 9))
    assert (found.rule, found.severity) == ("loss-off-by-factor", "warning")
    assert found.found.startswith("1/2 of that: elements of the loss have the weight 0.1111")
    assert found.cause.startswith("2 is the world size: ")


def test_micro_batches_that_are_added_up():
    found = finding(lambda *_: (4, 1 / 4), calls=3)
    assert (found.rule, found.advice) == (
        "undivided-micro-batches",
        "Divide the loss by the number of micro-batches before backward(): (loss / 3).backward().",
    )


def test_one_micro_batchs_number_for_the_window():
    found = finding(lambda rank, step, call: (4 + (step + call) % 3 + call, 1 / (5 + (step + 1) % 3)), calls=2)
    assert (found.rule, found.found) == (
        "partial-window-divisor",
        "the gradients to be divided by 12, which are those of micro-batch 2 of 2 alone",
    )


@pytest.mark.parametrize("why", ["it is a root", ""])
def test_the_reason_where_nothing_was_compared(why: str):
    found = judged(lambda *_: (4, 1 / 4), why=why or "x") if why else judge(trained({"a": mean, "b": mean}))
    assert found.checked == 0
    assert found.skipped_because == (why or "not every loss of the step was looked at")


def test_gradients_that_are_no_sum():
    def noise(rank: int, name: str, of: Any, _: Vector | None) -> Vector:
        return np.roll(of[0, 0], 1 + rank)

    assert judged(lambda *_: (4, 1 / 4), noise).skipped_because == UNSEEN


def test_an_advisory_makes_nothing_held():
    """Half of the rest in one tensor, with equally many elements on all ranks: it may be meant, or be a mistake."""

    def halved(_: int, __: str, of: Any, ___: Vector | None) -> Vector:
        return np.sum(list(of.values()), axis=0) / 4

    found = judge(trained({"a": halved, "b": mean}, more=losses(lambda *_: (4, 1 / 4))))
    assert [one.rule for one in (*found.findings, *found.advisories)] == ["parameter-off-by-factor"]
    assert found.checked == 0
