"""Parameters that an optimizer has dealt out to the ranks: an owner steps each, and hands its new value to all.

The ground is what is done at every step that was looked at: a rank gives a
value into a gather, and another rank has this very value as its parameter when
the step is over, which it has not given itself. Values that are equal without
such a gather are no ground.
"""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.evidence import WIDTH
from ddpcheck.judging import step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World

Pieces = dict[tuple[int, int, int, str], list[tuple[frozenset[int], set[bytes]]]]
"""By rank, optimizer, step and way: the ranks of each call, and what went into it."""


def handed_out(world: World, optimizer: Aligned) -> set[int]:
    """The places of the parameters that one rank hands to all at every step, or whose gradients go that way."""
    pieces = _pieces(world)
    found: set[int] | None = None
    before = [one.values for one in optimizer.described]
    for _, steps in optimizer.compared() if pieces else ():
        after = [s.parameters for s in steps]
        gathered = [_of(pieces, optimizer, rank, s, "gather") for rank, s in zip(optimizer.ranks, steps, strict=True)]
        if all(s.whole for s in steps) and any(gathered):
            given = _given(before, after, gathered)
            if given:
                scattered = [
                    _of(pieces, optimizer, rank, s, "scatter") for rank, s in zip(optimizer.ranks, steps, strict=True)
                ]
                given |= _reduced([s.gradients for s in steps], scattered)
            found = given if found is None else found & given
        before = after
    return found or set()


@once_per_world
def _pieces(world: World) -> Pieces:
    """What ranks give into calls during a step, with the ranks that take part."""
    found: Pieces = defaultdict(list)
    for rank, one in world.of(ev.Filled):
        ranks = frozenset(other.rank for other in step_alignment.members(world, one.group))
        cut = {one.pieces[at : at + WIDTH] for at in range(0, len(one.pieces), WIDTH)}
        found[rank.rank, one.optimizer, one.number, one.op].append((ranks, cut - {ev.ABSENT, ev.UNSEEN}))
    return found


def _of(pieces: Pieces, optimizer: Aligned, rank: Rank, step: ev.Step, op: str) -> set[bytes]:
    """What a rank gives into calls on all the optimizer's ranks."""
    numbers = {one.rank for one in optimizer.ranks}
    calls = pieces.get((rank.rank, step.optimizer, step.number, op), ())
    return {one for ranks, cut in calls if numbers <= ranks for one in cut}


def _given(before: list[bytes], after: list[bytes], gathered: list[set[bytes]]) -> set[int]:
    """The places at which a rank has a new value that went into the gathers; none if no rank has another's."""
    every = set[bytes]().union(*gathered)
    found, taken = set(), False
    for place in range(min(map(len, after)) // WIDTH):
        new = [
            (value, given)
            for mine, old, given in zip(after, before, gathered, strict=True)
            if (value := step_alignment.at(mine, place)) in every and value != step_alignment.at(old, place)
        ]
        # Where ranks keep different values that each has given itself, all own it: as in a population.
        if new and len({value for value, given in new if value in given}) < 2:
            found.add(place)
            taken |= any(value not in given for value, given in new)
    return found if taken else set()


def _reduced(gradients: list[bytes], scattered: list[set[bytes]]) -> set[int]:
    """The places whose gradients every rank gives into a reduction to owners."""
    places = range(min(map(len, gradients)) // WIDTH)
    return {
        place
        for place in places
        if all(step_alignment.at(mine, place) in given for mine, given in zip(gradients, scattered, strict=True))
    }
