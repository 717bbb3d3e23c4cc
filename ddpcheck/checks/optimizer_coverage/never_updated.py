"""Matrices that come out of every step as they went into it, whatever their gradients are, while others change.

So it is where an optimizer of the program's own deals its work out to the
ranks: an owner's update is overwritten by what another rank sends, or nobody
owns it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

ENOUGH = 3
"""Steps that were looked at in full."""
SMALLEST = 1e-5
"""A rate below which an update may be lost in rounding."""


class _Place(NamedTuple):
    stands: bool
    """Its gradient was another one at each step, and it is what it was before the first of them."""
    moves: bool


def findings(world: World) -> Iterator[Finding]:
    """Say it once for each optimizer, of what stands on every rank that has it."""
    each: dict[int, list[tuple[Rank, ev.Optimizer]]] = defaultdict(list)
    for rank in world:
        for one in rank.of(ev.Optimizer):
            each[one.optimizer].append((rank, one))
    for held in each.values():
        if len({rank.rank for rank, _ in held}) < len(held) or any(one.torchs for _, one in held):
            continue  # it was given others later; or it is one of torch's, which forgets nothing
        looked = [(rank, _looked_at(rank, one)) for rank, one in held]
        if all(len(steps) >= ENOUGH for _, steps in looked):
            found = _judged(held, [steps for _, steps in looked])
            if found is not None:
                yield found


def _looked_at(rank: Rank, described: ev.Optimizer) -> list[ev.Step]:
    return [
        one
        for one in rank.of(ev.Step)
        if one.optimizer == described.optimizer and one.whole and one.gradients and one.parameters
    ]


def _judged(held: Sequence[tuple[Rank, ev.Optimizer]], looked: Sequence[list[ev.Step]]) -> Finding | None:
    standing: list[set[str]] = []
    moving: set[str] = set()
    for (_, described), steps in zip(held, looked, strict=True):
        slow = _slow(described, steps) | _in_turn(described, steps)
        seen = {
            one.path: _place(described, steps, place)
            for place, one in enumerate(described.parameters)
            if one.path and _is_a_matrix(one) and place not in slow
        }
        standing.append({path for path, one in seen.items() if one.stands})
        moving |= {path for path, one in seen.items() if one.moves}
    names = [one.path for one in held[0][1].parameters if all(one.path in its for its in standing)]
    if not names or not moving:
        return None
    rank, described = held[0]
    return Finding(
        rule="parameter-never-updated",
        severity="warning",
        ranks=tuple(one.rank for one, _ in held),
        subject=names[0],
        step=looked[0][0].number,
        expected="an optimizer to change every parameter that it holds and that gets gradients",
        found=f"{count(len(names), 'matrix', 'matrices')} of the {described.kind} to be the same after each of "
        f"{len(looked[0])} steps, with a new gradient at each, while others change: {listing(names)}",
        cause="what its owner makes of it is overwritten by what another rank sends, or no rank owns it"
        if len(held) > 1
        else "the optimizer leaves it out",
        advice="Let the rank that updates a parameter be the one that sends it (src of the broadcast), and give every "
        "parameter to one rank, also where their number is no multiple of the ranks.",
        where=rank.where(looked[0][0].site),
        links=(f"optimizer {described.optimizer}",),
    )


def _place(described: ev.Optimizer, steps: Sequence[ev.Step], place: int) -> _Place:
    gradients = [step_alignment.at(one.gradients, place) for one in steps]
    values = [step_alignment.at(described.values, place)] if steps[0].number == described.number else []
    values += [step_alignment.at(one.parameters, place) for one in steps]
    if {b"", ev.ABSENT, ev.UNSEEN} & {*gradients, *values}:
        return _Place(False, False)
    new = len(set(gradients)) == len(gradients)
    return _Place(new and len(set(values)) == 1 < len(values), new and len(set(values)) == len(values))


def _in_turn(described: ev.Optimizer, steps: Sequence[ev.Step]) -> set[int]:
    """The places of groups of which nothing changes, as of blocks that an optimizer takes one after the other."""
    found: set[int] = set()
    begin = 0
    for size in described.groups:
        places = range(begin, begin + size)
        if size > 1 and all(_place(described, steps, place).stands for place in places):
            found.update(places)
        begin += size
    return found


def _is_a_matrix(one: ev.Parameter) -> bool:
    """Whether it has two dimensions or more, in full precision: others may be too near to 1 for small updates."""
    return one.kind.startswith(("float32[", "float64[")) and "," in one.kind and not one.filled


def _slow(described: ev.Optimizer, steps: Sequence[ev.Step]) -> set[int]:
    """The places of groups that have no rate to speak of at some step."""
    found: set[int] = set()
    begin = 0
    for number, size in enumerate(described.groups):
        rates = [one.rates[number] for one in steps if number < len(one.rates)]
        if len(rates) < len(steps) or min(rates) < SMALLEST:
            found.update(range(begin, begin + size))
        begin += size
    return found
