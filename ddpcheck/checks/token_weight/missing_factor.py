"""A part of a loss that lacks a factor which another part has, and without which that one would not be right."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.token_weight.whole_weight import NEAR, called, is_near, whole
from ddpcheck.judging.summed_gradients import brought
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import CallSite, Finding

Place = tuple[CallSite | None, int]
"""The line of a backward(), and a part of its loss."""


class _Missing(NamedTuple):
    """A factor that one part has and another has not, at some steps."""

    numbers: list[int]
    size: int
    whole: Place
    lacking: Place
    by: str


def judge(world: World) -> list[Finding]:
    """Both parts are divided by the elements of all ranks; one of them adds up to 1 by that factor."""
    met: dict[tuple[Place, Place], _Missing] = {}
    for over, window, factor in _reductions(world):
        terms = _terms(world, over, window)
        even = {place: its for place, its in terms.items() if len(its) == len(over) and _is_of_all(its)}
        for place, its in even.items():
            if not is_near(factor * math.fsum(term.elements * term.weight for _, term in its), 1):
                continue
            for other, theirs in even.items():
                size = _missing(its[0][1], theirs[0][1]) if other[0] == place[0] and other != place else None
                if size is not None and world.world_size % size == 0:
                    found = met.setdefault((place, other), _Missing([], size, place, other, theirs[0][1].by))
                    found.numbers.append(its[0][0])
    return [_finding(world, one) for one in met.values() if len(one.numbers) > 1]


def _reductions(world: World) -> list[tuple[tuple[int, ...], int, float]]:
    """The ranks that add their gradients up in each window, and what the sum is multiplied by."""
    found = {(one.over, one.window): one.factor for one in brought(world) if len(one.over) > 1}
    return [(over, window, factor) for (over, window), factor in found.items()]


def _terms(world: World, over: tuple[int, ...], window: int) -> dict[Place, list[tuple[int, ev.Term]]]:
    """The parts of the one loss that each rank has gone back from, rank by rank, with the step."""
    found: dict[Place, list[tuple[int, ev.Term]]] = defaultdict(list)
    for rank in world:
        for record in rank.of(ev.StepWeights) if rank.rank in over else ():
            own = [one for one in record.backwards if not one.continued]
            if record.window == window and not record.why and len(own) == 1:
                for place, term in enumerate(own[0].terms):
                    found[rank.where(own[0].site), place].append((record.number, term))
    return found


def _is_of_all(its: list[tuple[int, ev.Term]]) -> bool:
    """Whether an element has one weight on all ranks, though these have unequally many."""
    terms = [term for _, term in its if term.elements and term.weight]
    weights = [term.weight for term in terms]
    several = len(terms) > 1 and len({term.elements for term in terms}) > 1
    return several and max(weights) <= (1 + NEAR) * min(weights) and not any(term.scaled for term in terms)


def _missing(one: ev.Term, other: ev.Term) -> int | None:
    """The whole number that one part is multiplied by and the other is not, where they are scaled alike otherwise.

    A coefficient of its own is every part's right.
    """
    rest = list(other.scales)
    left, shared = [], False
    for scale in one.scales:
        same = next((s for s in rest if is_near(s, scale)), None)
        if same is None:
            left.append(scale)
        else:
            rest.remove(same)
            shared |= not is_near(scale, 1)
    left = [scale for scale in left if not is_near(scale, 1)]
    rest = [scale for scale in rest if not is_near(scale, 1)]
    if len(left) != 1 or len(rest) > 1 or left[0] < 1 or not shared:
        return None
    return whole(left[0])


def _finding(world: World, one: _Missing) -> Finding:
    name = called(world, one.size, tuple(rank.rank for rank in world))
    return Finding(
        rule="missing-loss-factor",
        ranks=tuple(rank.rank for rank in world),
        subject=f"a part of the loss ({one.by})",
        severity="warning",
        step=one.numbers[0],
        count=len(one.numbers),
        expected="both parts of the loss, which are divided by the elements of all ranks, to be multiplied by "
        f"{one.size}: with it, the other part is the mean over these",
        found=f"the other part is multiplied by {one.size}, and this one is not",
        cause=f"{one.size} is {name}: this part lacks it, and is weakened by it",
        advice="Multiply the sum of the parts by what undoes the division of gradients, and not each part.",
        where=one.lacking[0],
    )
