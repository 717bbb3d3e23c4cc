"""Is a step made of the gradients that backward() has computed, or of zeros in their place?"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, ranks_text

ENOUGH = 2
"""Steps on zeros: a single one may be left out on purpose."""


class _Made(NamedTuple):
    """A step, in a window of its rank."""

    rank: Rank
    step: ev.Step
    sums: ev.GradientSums
    emptied: bool
    """backward() has left gradients, and all are zeros when the step is made on them."""


def findings(world: World) -> Iterator[Finding]:
    """Steps on zeros without any collective, on some ranks, while others make theirs on gradients.

    Who leaves a step out, as after an overflow, does so on all ranks, or learns
    of it from the others. Zeros that only stand in this rank's part of a sum are
    none when the step is made.
    """
    windows = by_key((made.sums.window, made) for rank in world for made in _made(rank))
    lost: dict[str, list[_Made]] = defaultdict(list)
    trained = {made.rank.rank for each in windows.values() for made in each if _is_whole(made)}
    for each in windows.values():
        if any(map(_is_whole, each)):
            for made in each:
                if made.emptied and not made.step.collectives and made.rank.rank in trained:
                    lost[str(made.rank.where(made.step.site))].append(made)
    for its in lost.values():
        if len(its) >= ENOUGH:
            yield _finding(its, sum(map(len, windows.values())))


def _made(rank: Rank) -> Iterator[_Made]:
    steps = by_key((one.optimizer, one) for one in rank.of(ev.Step))
    left: dict[int, ev.GradientSums] = {}
    for record in rank.of(ev.GradientSums):
        if record.optimizer is None:
            left[record.window] = record
            continue
        its = steps[record.optimizer]
        step = next(iter(its[bisect_right(its, record.n, key=lambda one: one.n) :]), None)
        before = left.get(record.window)
        if step is not None and before is not None:
            yield _Made(rank, step, record, _is_emptied(before, record))


def _is_emptied(left: ev.GradientSums, stepped: ev.GradientSums) -> bool:
    """Whether all that is stepped on is zeros, and none of it was so when backward() had ended."""
    before = {(one.model, one.path): one.numbers for one in left.each}
    pairs = [(before.get((one.model, one.path)), one.numbers) for one in stepped.each]
    return bool(pairs) and all(was and any(was) and now is not None and not any(now) for was, now in pairs)


def _is_whole(made: _Made) -> bool:
    """Whether the step was made on gradients, after something had been exchanged."""
    return bool(made.step.collectives) and any(any(one.numbers or ()) for one in made.sums.each)


def _finding(its: list[_Made], among: int) -> Finding:
    first = its[0]
    ranks = tuple(sorted({made.rank.rank for made in its}))
    names = [one.path for one in first.sums.each]
    return Finding(
        rule="step-on-zeroed-gradients",
        severity="warning",
        ranks=ranks,
        subject=names[0],
        step=first.step.number,
        expected="each step to be made on what backward() has computed, or on what the ranks have made of it",
        found=f"{count(len(its), 'step')} (of {among} looked at) on zeros, on {ranks_text(ranks)}, though backward() "
        "had left gradients and nothing was exchanged since; in the same round other ranks stepped on theirs",
        cause="the gradients are taken from a buffer that only an exchange fills, and there was none",
        advice="Step on the rank's own gradient where there is nobody to average with, or leave the step out.",
        where=first.rank.where(first.step.site),
        count=len({(one.rank.rank, one.step.optimizer) for one in its}),
        links=(f"optimizer {first.step.optimizer}",),
    )
