"""Windows in which something was compared: on gradients that are finite, as far as that is known."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.differing_steps import Compared
from ddpcheck.judging.step_alignment import Aligned, Windows
from ddpcheck.judging.world import Rank
from ddpcheck.judging.zero_digests import covers


def compared_windows(
    optimizer: Aligned, steps: Compared, places: Collection[int], digests: Callable[[ev.Step], bytes]
) -> Windows:
    """The windows whose digests compare something at these places.

    After a step on gradients that are not finite nothing is, until that is seen.
    """
    each = zip(optimizer.ranks, optimizer.described, strict=True)
    looks = [_looks(rank, described.optimizer) for rank, described in each]
    return {
        (optimizer.number, number)
        for number, step in steps
        if all(map(_is_finite, looks, step))
        and covers(optimizer.described[0].parameters, [digests(one) for one in step], places)
    }


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
