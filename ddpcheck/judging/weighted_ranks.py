"""What each rank's gradients were multiplied by before a program's own reduction added them up: as by its tokens.

Worked out from a few sums of each gradient, as backward() has left them on all
ranks and as the step was made on them: all parameters have the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.summed_gradients import ALIKE, EXACT, LARGEST
from ddpcheck.judging.world import World

MOST = 16
"""Ranks."""

Numbers = dict[str, list[float]]
"""By parameter."""


def factors(world: World, ranks: Sequence[int], window: int) -> list[float] | None:
    """One number for each rank, 0 for one that is not in the sum.

    None where the gradients of the step are not what such numbers make of them.
    """
    if not 1 < len(ranks) <= MOST:
        return None
    left, stepped = _left(world).get(window, {}), _stepped(world).get(window, {}).get(ranks[0], {})
    rows: list[list[float]] = []
    sums: list[float] = []
    for path, total in stepped.items():
        each = [left.get(rank, {}).get(path, []) for rank in ranks]
        if any(len(one) != len(total) for one in each):
            return None
        rows += [list(row) for row in zip(*each, strict=True)]
        sums += total
    if len(rows) < 2 * len(ranks):
        return None
    found = _solved(rows, sums)
    if found is None or max(found) <= 0:
        return None
    least = EXACT * max(found)  # rounding makes a small number of either sign out of 0
    if min(found) < -least:
        return None
    # Where each rank steps on its own gradient, nothing was added up.
    if min(found) <= least and not _have_stepped_alike(world, ranks, window):
        return None
    off = math.dist(sums, [math.fsum(f * value for f, value in zip(found, row, strict=True)) for row in rows])
    return [one if one > least else 0.0 for one in found] if off <= EXACT * math.hypot(*sums) else None


def _have_stepped_alike(world: World, ranks: Sequence[int], window: int) -> bool:
    """Whether these ranks stepped on the same gradients, by the sums on record."""
    first, *others = [_stepped(world).get(window, {}).get(rank, {}) for rank in ranks]
    sums = [number for one in first.values() for number in one]
    return all(
        {path: len(one) for path, one in other.items()} == {path: len(one) for path, one in first.items()}
        and math.dist([number for path in first for number in other[path]], sums) <= EXACT * math.hypot(*sums)
        for other in others
    )


@once_per_world
def _left(world: World) -> dict[int, dict[int, Numbers]]:
    """By window and rank: what the last backward() has left."""
    return _numbers(world, stepped=False)


@once_per_world
def _stepped(world: World) -> dict[int, dict[int, Numbers]]:
    """By window and rank: what steps were made on."""
    return _numbers(world, stepped=True)


def _numbers(world: World, stepped: bool) -> dict[int, dict[int, Numbers]]:
    found: dict[int, dict[int, Numbers]] = {}
    for rank, record in world.of(ev.GradientSums):
        if (record.optimizer is not None) == stepped:
            for one in record.each:
                if one.numbers and not one.over and all(abs(number) < LARGEST for number in one.numbers):
                    found.setdefault(record.window, {}).setdefault(rank.rank, {})[one.path] = one.numbers
    return found


def _solved(rows: list[list[float]], sums: list[float]) -> list[float] | None:
    """The numbers by which the columns make the sums, as nearly as may be; None where several would."""
    size = len(rows[0])
    square = [
        [math.fsum(row[a] * row[b] for row in rows) for b in range(size)]
        + [math.fsum(row[a] * value for row, value in zip(rows, sums, strict=True))]
        for a in range(size)
    ]
    scale = max(square[place][place] for place in range(size))
    for place in range(size):
        pivot = max(range(place, size), key=lambda at: abs(square[at][place]))
        if not abs(square[pivot][place]) > ALIKE * ALIKE * scale:
            return None
        square[place], square[pivot] = square[pivot], square[place]
        for other in range(size):
            if other != place:
                ratio = square[other][place] / square[place][place]
                square[other] = [a - ratio * b for a, b in zip(square[other], square[place], strict=True)]
    return [square[place][size] / square[place][place] for place in range(size)]
