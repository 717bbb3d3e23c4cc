"""Rules that follow from who has a share in a step: what each says, from evidence that is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.accumulation_window.run import judge as accumulation_window
from ddpcheck.checks.gradient_sync.run import judge as gradient_sync
from ddpcheck.checks.reducer_coverage.run import judge as reducer_coverage
from ddpcheck.judging.world import Judged, World
from tests.facts.trained import Contributed, Stepped, Vector, among, mean, own, trained
from tests.judging.written import Made, call

Judge = Callable[[World], Judged]


def last(_: int, __: str, of: Contributed, ___: Vector | None) -> Vector:
    most = max(call for _, call in of)
    return np.sum([one for (_, call), one in of.items() if call == most], axis=0) / 2


def halved(_: int, __: str, of: Contributed, ___: Vector | None) -> Vector:
    return np.sum([one * 0.5 ** (1 - call) for (_, call), one in of.items()], axis=0) / 2


def kept(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector:
    return mean(rank, name, of, None) + (0 if before is None else before)


def again(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector | None:
    return mean(rank, name, of, None) if of else before


def given_each_other(_: int) -> list[Made]:
    return [call(0, 5, op="all_reduce", detail="float32[64, 8] sum")]


def alike(_: int, step: int) -> list[tuple[str, str, str]]:
    return [("a", f"in{step}", f"out{step}")]


def windows(became: str = "", leftover: bool = False, **more: Any) -> Callable[[int], list[Made]]:
    """What became of gradients between two backward() calls of each window."""
    between = [ev.Between(became=became, after=5, before=5, **more)] if became else []  # type: ignore[arg-type]
    given = {"optimizer": 0, "site": 9, "backwards": 2, "backward_site": 5, "between": between}
    given |= {"leftover": leftover}
    return lambda _: [(ev.Window, {"number": number, **given}) for number in range(4)]


@pytest.mark.parametrize(
    ("judge", "stepped", "more", "expected"),
    [
        (
            reducer_coverage,
            {"a.w": own},
            {"values": alike, "more": given_each_other},
            ("partial-gradients", "warning", 9),
        ),
        (reducer_coverage, {"a.w": own, "b.w": mean}, {}, ("left-out-of-reduction", "warning", 9)),
        (reducer_coverage, {"a.w": own}, {"owners": {"a.w": 0}}, ("owner-gradient-not-reduced", "warning", 9)),
        (
            reducer_coverage,
            {"a.w": among((0, 1), (2, 3))},
            {"ranks": 4, "began": lambda rank, name: f"{name}{rank % 2}"},
            ("reduced-over-wrong-ranks", "warning", 9),
        ),
        (reducer_coverage, {"a.w": own}, {}, ("copies-never-reduced", "warning", 9)),  # an advisory, by its rule
        (
            accumulation_window,
            {"a.w": last},
            {"calls": 2, "parts": False, "after": windows()},
            ("lost-gradients", "warning", 9),
        ),
        (
            accumulation_window,
            {"a.w": last},
            {"calls": 2, "parts": False, "after": windows("lost", prepared=True)},
            ("lost-gradients", "error", 5),
        ),
        (accumulation_window, {"a.w": halved}, {"calls": 2, "parts": False}, ("rescaled-gradients", "warning", 9)),
        (
            accumulation_window,
            {"a.w": halved},
            {"calls": 2, "parts": False, "after": windows("rescaled", clip=6)},
            ("rescaled-gradients", "error", 6),
        ),
        (
            reducer_coverage,
            {"a.w": again},
            {"parts": False, "steps": 8, "idle": lambda number: number % 2 == 1},
            ("repeated-step", "warning", 9),
        ),
        (
            accumulation_window,
            {"a.w": kept},
            {"parts": False, "steps": 6, "after": windows(leftover=True)},
            ("missing-zero-grad", "warning", 9),
        ),
    ],
)
def test_what_is_said(
    judge: Judge, stepped: Mapping[str, Stepped], more: dict[str, Any], expected: tuple[str, str, int]
):
    judged = judge(trained(stepped, **more))
    (found,) = judged.findings
    assert found.where is not None
    assert (found.rule, found.severity, found.where.line) == expected
    assert found.subject == "a.w"
    assert "{" not in f"{found.expected}{found.found}{found.cause}{found.advice}"
    assert found.count > 0
    is_unsaid = found.rule == "copies-never-reduced"  # it may be meant: nothing was compared
    assert judged.checked == 0 if is_unsaid else judged.checked >= found.count


def test_what_one_rank_alone_gets_and_what_is_left_out_now_and_then():
    def to_first(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector:
        return (own if rank else mean)(rank, name, of, before)

    turns: dict[int, int] = {}

    def seldom(rank: int, name: str, of: Contributed, before: Vector | None) -> Vector:
        turns[rank] = turns.get(rank, 0) + 1
        return (own if turns[rank] % 2 else mean)(rank, name, of, before)

    for stepped, expected in (
        (to_first, ("reduction-to-one-rank", "error")),
        (seldom, ("skipped-reduction", "warning")),
    ):
        judged = gradient_sync(trained({"a.w": stepped, "b.w": mean}, steps=6))
        (found,) = judged.findings
        assert (found.rule, found.severity) == expected
        assert 0 < found.count <= judged.checked


@pytest.mark.parametrize("judge", [reducer_coverage, accumulation_window, gradient_sync])
def test_what_is_complete_is_held_where_it_was_compared(judge: Judge):
    judged = judge(trained({"a.w": mean, "b.w": mean}, calls=2, parts=False))
    assert not judged.findings
    assert bool(judged.checked) is (judge is not gradient_sync)  # nothing says that these are copies


@pytest.mark.parametrize("judge", [reducer_coverage, accumulation_window])
def test_what_is_no_sum_is_not_checked(judge: Judge):
    draw = np.random.default_rng(5)
    judged = judge(trained({"a.w": lambda *_: draw.normal(size=8)}, calls=2, parts=False))
    assert (judged.checked, judged.findings) == (0, ())
