"""Parameters that the optimizer of one rank has, and that it sends to the others between steps: ZeRO by hand.

The ground is what is done: what the owner's step has left is what another rank,
whose optimizers do not have the parameter, holds when its own next step begins,
again and again, and it is new each time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World

ENOUGH = 2
"""Times that what an owner has made was met on another rank."""

Key = tuple[str, str]
"""The class of a model, and a parameter's path in there."""


class Taken(NamedTuple):
    """What another rank held when one of its steps began."""

    rank: Rank
    number: int
    same: bool
    """It is what the owner's step before has left."""
    old: bool
    """It is what this rank had held, or the owner had left, before that."""


class Sent(NamedTuple):
    owner: Rank
    optimizer: ev.Optimizer
    model: int
    """Of the owner's."""
    path: str
    taken: list[Taken]


class _Owned(NamedTuple):
    rank: Rank
    optimizer: ev.Optimizer
    model: int
    after: dict[int, bytes]
    """By the number of the step, its digest."""


@once_per_world
def sent(world: World) -> list[Sent]:
    """All parameters of which this was seen."""
    owned = _owned(world)
    found = []
    for key, (owner, *more) in owned.items():
        if more:
            continue
        taken = [one for rank in world if rank is not owner.rank for one in _taken(rank, key, owner)]
        if taken:
            found.append(Sent(owner.rank, owner.optimizer, owner.model, key[1], taken))
    return found


@once_per_world
def never_sent(world: World) -> list[Sent]:
    """What the owners of parameters that are sent have beside these, and other ranks use and do not step themselves."""
    owners = {(one.owner, one.optimizer.optimizer) for one in sent(world)}
    known = {(one.owner, one.path) for one in sent(world)}
    found = []
    for key, (owner, *more) in _owned(world).items():
        beside = (owner.rank, owner.optimizer.optimizer) in owners and (owner.rank, key[1]) not in known
        if beside and not more:
            taken = [one for rank in world if rank is not owner.rank for one in _taken(rank, key, owner, enough=0)]
            if taken:
                found.append(Sent(owner.rank, owner.optimizer, owner.model, key[1], taken))
    return found


def _kinds(rank: Rank) -> dict[int, str]:
    return {one.model: one.kind for one in rank.of(ev.Model)}


def _owned(world: World) -> dict[Key, list[_Owned]]:
    """By parameter, the optimizers that have it."""
    found: dict[Key, list[_Owned]] = defaultdict(list)
    if not any(rank.of(ev.Unstepped) for rank in world):
        return found
    for rank in world:
        kinds = _kinds(rank)
        for described in rank.of(ev.Optimizer):
            steps = [one for one in rank.of(ev.Step) if one.optimizer == described.optimizer and one.whole]
            for place, one in enumerate(described.parameters):
                if one.path and one.model in kinds:
                    after = {step.number: step_alignment.at(step.parameters, place) for step in steps}
                    found[kinds[one.model], one.path].append(_Owned(rank, described, one.model, after))
    return found


def _taken(rank: Rank, key: Key, owner: _Owned, enough: int = ENOUGH) -> list[Taken]:
    """What a rank has held; nothing where it was not seen so often to get anything new from the owner.

    Of its optimizers, that counts whose steps go with the owner's: another one may step less often.
    """
    kinds = _kinds(rank)
    looks: dict[int, list[ev.Unstepped]] = defaultdict(list)
    for look in rank.of(ev.Unstepped):
        if kinds.get(look.model) == key[0] and key[1] in look.names:
            looks[look.optimizer].append(look)
    best: list[Taken] = []
    most = enough - 1
    for its in looks.values():
        found, before, times = [], b"", 0
        met: set[bytes] = set()
        for look in its:
            value = step_alignment.at(look.values, look.names.index(key[1]))
            made = owner.after.get(look.number - 1, b"")
            if {value, made} & {b"", ev.UNSEEN, ev.ABSENT}:
                continue
            met.update(left for number, left in owner.after.items() if number < look.number - 1)
            found.append(Taken(rank, look.number, value == made, value in met))
            met.add(value)
            times += value == made != before
            before = value
        if times > most:
            best, most = found, times
    return best
