"""Is a step made of the gradients that backward() has computed, or of zeros in their place?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts import moments
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
    emptied: bool
    """backward() has contributed gradients, and all are zeros when the step is made on them."""
    whole: bool
    """It was made on gradients, after something had been exchanged."""
    name: str
    """A parameter."""


def findings(world: World) -> Iterator[Finding]:
    """Steps on zeros without any collective, on some ranks, while others make theirs on gradients.

    Who leaves a step out, as after an overflow, does so on all ranks, or learns
    of it from the others. Zeros that only stand in this rank's part of a sum are
    none when the step is made.
    """
    windows = by_key((made.step.number, made) for rank in world for made in _made(rank))
    lost: dict[str, list[_Made]] = defaultdict(list)
    trained = {made.rank.rank for each in windows.values() for made in each if made.whole}
    for each in windows.values():
        if any(made.whole for made in each):
            for made in each:
                if made.emptied and not made.step.collectives and made.rank.rank in trained:
                    lost[str(made.rank.where(made.step.site))].append(made)
    for its in lost.values():
        if len(its) >= ENOUGH:
            yield _finding(its, sum(map(len, windows.values())))


def _made(rank: Rank) -> Iterator[_Made]:
    for step in rank.of(ev.Step):
        window = moments.window(rank, step.optimizer, step.number)
        if window is not None:
            stepped = {piece for piece, value in window.gradients.items() if value.sketch.any()}
            given = {piece for piece, each in window.contributions.items() if any(one.sketch.any() for one in each)}
            own = given & window.gradients.keys()
            pieces = moments.pieces(rank)
            name = pieces[min(own)].path if own else ""
            yield _Made(rank, step, bool(own) and not stepped, bool(stepped) and bool(step.collectives), name)


def _finding(its: list[_Made], among: int) -> Finding:
    first = its[0]
    ranks = tuple(sorted({made.rank.rank for made in its}))
    return Finding(
        rule="step-on-zeroed-gradients",
        severity="warning",
        ranks=ranks,
        subject=first.name,
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
