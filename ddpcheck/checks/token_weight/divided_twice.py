"""A window whose losses are divided by the micro-batches already, and whose gradients are divided by them once more."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from ddpcheck.checks.token_weight.whole_weight import Loss, is_near, known
from ddpcheck.judging.summed_gradients import Brought, brought
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import CallSite, Finding


class _Window(NamedTuple):
    """One window of some ranks: by what its losses are divided, and what all of it counts."""

    number: int
    loss: Loss
    micro_batches: int
    total: float


def judge(world: World) -> list[Finding]:
    """The means of a window, each divided by their number, add up to one mean over all of it; it counts less.

    Whatever the ranks or a schedule do besides, a window that is made of such
    means counts 1, or by the size of a group; not by the number of its own
    micro-batches.
    """
    met: dict[tuple[tuple[int, ...], int], list[Brought]] = defaultdict(list)
    for one in brought(world):
        if one.rank.rank == min(one.over):
            met[one.over, one.window].append(one)
    by_ranks: dict[tuple[int, ...], list[_Window | None]] = defaultdict(list)
    for (over, window), gradients in met.items():
        by_ranks[over].append(_window(world, over, window, gradients))
    found: dict[CallSite | None, Finding] = {}
    for over, each in by_ranks.items():
        windows = [one for one in each if one is not None and is_near(one.total * one.micro_batches, 1)]
        if len(windows) > 1 and len(windows) == len(each):
            found.setdefault(windows[0].loss.where, _finding(over, windows))
    return list(found.values())


def _window(world: World, over: tuple[int, ...], window: int, gradients: list[Brought]) -> _Window | None:
    """Of gradients that have one factor all together: a part of a model may count less on purpose."""
    factor = gradients[0].factor
    if not all(is_near(one.factor, factor) for one in gradients):
        return None
    losses = known(world, window, over)
    if not losses or len({len(loss.values) for loss in losses}) > 1:
        return None
    number = len(losses[0].values)
    if number < 2 or not all(loss.kind == "mean" and is_near(loss.total, 1) for loss in losses):
        return None
    # A mean over the ranks that compute a loss: each of them counts one.
    total = factor * math.fsum(loss.total for loss in losses)
    return _Window(losses[0].number, losses[0], number, total)


def _finding(over: tuple[int, ...], windows: list[_Window]) -> Finding:
    _, loss, number, _ = windows[0]
    return Finding(
        rule="mean-divided-twice",
        ranks=over,
        subject="the loss",
        severity="warning",
        step=loss.number,
        count=len(windows),
        expected=f"the {number} micro-batches of a window, whose means are divided by {number} each, to count together "
        "as much as one mean",
        found=f"1/{number} of that: gradients are divided by {number} once more before the step",
        cause=f"both the loss and the gradients are divided by the {number} micro-batches",
        advice="Divide either the losses or the gradients, and not both: a pipeline's schedule divides gradients by "
        "itself, unless scale_grads=False.",
        where=loss.where,
    )
