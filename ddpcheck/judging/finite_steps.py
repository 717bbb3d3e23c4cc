"""Steps on gradients that were seen to be finite, or of which nothing else is known: what is not is equal by chance."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank


class FiniteSteps:
    """Those of an optimizer; after a step on other gradients nothing is finite until that is seen."""

    def __init__(self, optimizer: Aligned) -> None:
        each = zip(optimizer.ranks, optimizer.described, strict=True)
        self._looks = [_looks(rank, described.optimizer) for rank, described in each]

    def __contains__(self, steps: Sequence[ev.Step]) -> bool:
        return all(_is_finite(looks, step) for looks, step in zip(self._looks, steps, strict=True))


def _looks(rank: Rank, optimizer: int) -> list[tuple[int, bool]]:
    """When sums of its gradients were made, and whether all of these are finite."""
    return [
        (record.n, all(math.isfinite(number) for one in record.each for number in one.numbers or ()))
        for record in rank.of(ev.GradientSums)
        if record.optimizer == optimizer
    ]


def _is_finite(looks: Sequence[tuple[int, bool]], step: ev.Step) -> bool:
    place = bisect_left(looks, (step.n, False))
    return not place or looks[place - 1][1]
