"""What a program brings together between steps, now and then: parameters that differed, and are the same afterwards.

So do local SGD, model averaging and DiLoCo, whatever they send: parameters,
changes of them, a buffer. It is seen by what is done, at the step that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import CallSite


class Meeting(NamedTuple):
    """An exchange between two steps of an optimizer, among all of its ranks."""

    optimizer: Aligned
    number: int
    """The step that follows."""
    lines: tuple[CallSite | None, ...]
    """Of the calls, on the first rank."""
    met: frozenset[int]
    """The places that differed before, and are the same now."""
    apart: frozenset[int]
    """Those that differ now."""
    of_some: bool
    """Of these, some ranks hold the same, and not all."""


@once_per_world
def meetings(world: World) -> list[Meeting]:
    """All that were looked at, optimizer by optimizer."""
    if not any(rank.of(ev.AfterExchange) for rank in world):
        return []
    return [one for optimizer in step_alignment.optimizers(world) for one in _of(world, optimizer)]


def _of(world: World, optimizer: Aligned) -> Iterator[Meeting]:
    before = {number: steps for number, steps in optimizer.compared() if all(s.whole for s in steps)}
    for number, apart, each in looks(world, optimizer):
        if number - 1 not in before:
            continue
        differed = frozenset(step_alignment.differing([s.parameters for s in before[number - 1]]))
        lines = tuple(optimizer.ranks[0].where(site) for site in each[0].sites)
        of_some = any(len({step_alignment.at(one.values, place) for one in each}) < len(each) for place in apart)
        yield Meeting(optimizer, number, lines, differed - apart, apart, of_some)


def looks(world: World, optimizer: Aligned) -> Iterator[tuple[int, frozenset[int], list[ev.AfterExchange]]]:
    """Each look after an exchange among all of its ranks: the step that follows, what differs, and the records."""
    numbers = {rank.rank for rank in optimizer.ranks}
    looked = [
        {one.number: one for one in rank.of(ev.AfterExchange) if one.optimizer == described.optimizer}
        for rank, described in zip(optimizer.ranks, optimizer.described, strict=True)
    ]
    if any(order is not None for order in optimizer.orders):
        return
    for number in sorted(set(looked[0]).intersection(*looked[1:])):
        each = [its[number] for its in looked]
        among = [{r.rank for r in step_alignment.members(world, group)} for group in each[0].groups]
        if all(numbers <= ranks for ranks in among):
            yield number, frozenset(step_alignment.differing([one.values for one in each])), each


def brought_together(world: World, optimizer: Aligned) -> frozenset[int]:
    """The places of an optimizer's parameters that are brought together whenever that was looked at."""
    mine = [one.met for one in meetings(world) if one.optimizer is optimizer and one.met]
    return frozenset.intersection(*mine) if mine else frozenset()


def never_together(world: World, optimizer: Aligned) -> frozenset[int]:
    """The places that differ after every exchange that was looked at; none where none was."""
    mine = [apart for _, apart, _ in looks(world, optimizer)]
    return frozenset.intersection(*mine) if mine else frozenset()


def written_between(optimizer: Aligned) -> set[int]:
    """The places that were written to between two of its steps on some rank, by whatever means."""
    each = zip(optimizer.ranks, optimizer.described, optimizer.orders, strict=True)
    return {
        place if order is None else order.index(place)
        for rank, described, order in each
        for one in rank.of(ev.MovedBetween)
        for place in (one.moved if one.optimizer == described.optimizer else ())
        if order is None or place in order
    }


@once_per_world
def is_trained_apart(world: World) -> bool:
    """Whether ranks step copies each for itself, and bring them together now and then: they differ on purpose."""
    return any(
        any(one.apart for one in optimizer.described)
        or bool(grounds(world, optimizer).moved)
        or bool(brought_together(world, optimizer))
        for optimizer in step_alignment.optimizers(world)
    )
