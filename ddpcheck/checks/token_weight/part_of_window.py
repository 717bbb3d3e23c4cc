"""A window whose losses are sums, and whose gradients are divided by what one of its micro-batches has."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.whole_weight import NEAR, is_near
from ddpcheck.judging.summed_gradients import brought
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count

ENOUGH = 3
"""Windows, of which each is divided by the number of the same micro-batch: so many are not by chance."""


class _Window(NamedTuple):
    """What the micro-batches of one window have, over all ranks, and by what their sum is divided."""

    number: int
    elements: list[int]
    divisor: float
    where: CallSite | None


def judge(world: World) -> list[Finding]:
    """Sums that are added up are to be divided by the elements of all of them."""
    factors: dict[tuple[int, ...], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in brought(world):
        if len(one.over) > 1 and one.rank.rank == min(one.over):
            factors[one.over][one.window].append(one.factor)
    found = []
    for over, by_window in factors.items():
        windows = [_window(world, over, window, its) for window, its in sorted(by_window.items())]
        known = [one for one in windows if one is not None]
        if len(known) < ENOUGH or len(known) < len(windows) or len({len(one.elements) for one in known}) > 1:
            continue
        if any(is_near(one.divisor, sum(one.elements)) for one in known):
            continue
        micros = len(known[0].elements)
        of = [m for m in range(micros) if all(is_near(one.divisor, one.elements[m]) for one in known)]
        if len(of) == 1 and len({one.elements[of[0]] for one in known}) > 1:
            found.append(_finding(over, known, of[0]))
    return found


def _window(world: World, over: Sequence[int], window: int, factors: list[float]) -> _Window | None:
    """Where every rank has as many micro-batches, each one sum of elements of one weight."""
    if max(factors) > (1 + NEAR) * min(factors):
        return None
    each: list[list[ev.Term]] = []
    number, where = 0, None
    for rank in (one for one in world if one.rank in over):
        record = next((one for one in rank.of(ev.StepWeights) if one.window == window), None)
        if record is None or record.why or any(one.continued or len(one.terms) != 1 for one in record.backwards):
            return None
        each.append([one.terms[0] for one in record.backwards])
        if len({one.site for one in record.backwards}) > 1:
            return None  # losses of several kinds, of which one is what all are measured by
        number, where = record.number, where or rank.where(record.backwards[0].site)
    terms = [term for its in each for term in its]
    if len({len(its) for its in each}) > 1 or len(each[0]) < 2 or any(t.scaled or t.kind == "mean" for t in terms):
        return None
    weights = [term.weight for term in terms if term.elements]
    if not weights or max(weights) > (1 + NEAR) * min(weights) or not math.isfinite(weights[0]) or not weights[0]:
        return None
    elements = [sum(its[m].elements for its in each) for m in range(len(each[0]))]
    return _Window(number, elements, 1 / (weights[0] * factors[0]), where)


def _finding(over: Sequence[int], windows: list[_Window], micro: int) -> Finding:
    first = windows[0]
    micros = len(first.elements)
    name = "the last micro-batch" if micro == micros - 1 else f"micro-batch {micro + 1} of {micros}"
    return Finding(
        rule="partial-window-divisor",
        ranks=tuple(over),
        subject="the loss",
        severity="warning",
        step=first.number,
        count=len(windows),
        expected=f"the sums of {count(micros, 'micro-batch', 'micro-batches')} to be divided by the "
        f"{count(sum(first.elements), 'element')} that all of them have on all ranks",
        found=f"the gradients to be divided by {first.elements[micro]}, which are those of {name} alone",
        cause="the number of one micro-batch is taken for that of the window",
        advice="Add the numbers of all micro-batches up, and over the ranks, before gradients are divided.",
        where=first.where,
    )
