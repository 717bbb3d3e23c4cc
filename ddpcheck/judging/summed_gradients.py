"""How each parameter's gradient was brought together: over which ranks it was added up, and by what it was multiplied.

What a wrapper is declared to do is taken as such. What a program does itself is
worked out from a few sums of each gradient, as backward() left them and as the
step was made on them: the latter are those of some group's ranks, added up and
multiplied by one number, whatever collectives and divisions have done it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import happens_before
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.sent_by_owners import sent
from ddpcheck.judging.world import Rank, World

EXACT = 2e-3
"""By how much of itself what is worked out may be off; of arithmetic in 16 bits, which makes more, nothing is said."""
ALIKE = EXACT / 10
"""By how much of themselves gradients differ that are one and the same."""

LARGEST = 1e150
"""Of larger numbers, such as those of a training that diverges, there are no squares."""

Key = tuple[str, str, str]
"""The class of a model, a parameter's name in there, and its dtype and shape."""


class Brought(NamedTuple):
    """One parameter's gradient in one window, on one rank."""

    rank: Rank
    window: int
    optimizer: int
    model: int
    path: str
    over: tuple[int, ...]
    """The ranks whose gradients were added up."""
    factor: float
    """By which the sum was multiplied."""


@once_per_world
def brought(world: World) -> list[Brought]:
    """All gradients of which it could be told."""
    left: dict[int, _Left] = defaultdict(_Left)
    steps: list[tuple[Rank, Key, ev.GradientSums, ev.Sums]] = []
    for rank in world:
        kinds = {one.model: one.kind for one in rank.of(ev.Model)}
        for record in rank.of(ev.GradientSums):
            for one in record.each:
                if not all(abs(number) < LARGEST for number in one.numbers or ()):
                    continue
                key = (kinds.get(one.model, ""), one.path, one.kind)
                if record.optimizer is not None:
                    steps.append((rank, key, record, one))
                else:
                    left[record.window].numbers[key][rank.rank] = one.numbers or []
    groups = {rank.rank: _groups(world, rank) for rank in world}
    each = [_of(rank, key, record, one, left[record.window], groups[rank.rank]) for rank, key, record, one in steps]
    within = _reduced_within(world) if each else frozenset()
    return [
        one
        for one in each
        if one is not None and (len(one.over) > 1 or (one.rank.rank, one.model, one.path) not in within)
    ]


def _reduced_within(world: World) -> frozenset[tuple[int, int, str]]:
    """By rank and model, what an owner steps for all of which a hook may have added up the gradient within backward().

    There backward() may leave the sum on the owner, and what other ranks are left with says nothing of that.
    """
    each = sent(world)
    joint = {one.owner.rank for one in each if any(norm.joint for norm in one.owner.of(ev.Norm))}
    return frozenset((one.owner.rank, one.model, one.path) for one in each if one.owner.rank in joint)


def _groups(world: World, rank: Rank) -> list[tuple[int, ...]]:
    """Rank sets over which this rank may have added something up: itself, and those of its own collectives."""
    names = dict.fromkeys(one.group for one in rank.of(ev.Call) if "reduce" in one.op)
    sets = {happens_before.members(name, world.world_size) for name in names}
    return [(rank.rank,), *sorted((one for one in sets if rank.rank in one and len(one) > 1), key=len)]


def _of(
    rank: Rank, key: Key, record: ev.GradientSums, one: ev.Sums, left: _Left, groups: Sequence[tuple[int, ...]]
) -> Brought | None:
    stepped = one.numbers
    assert record.optimizer is not None
    if not stepped or not any(stepped):
        return None
    about = (rank, record.window, record.optimizer, one.model, one.path)
    if one.over:
        factor = _factor(stepped, left.numbers[key].get(rank.rank, ()))
        return Brought(*about, tuple(one.over), factor / one.divisor) if factor is not None and one.divisor else None
    found = []
    for ranks in groups:
        factor = _factor(stepped, left.sum(key, ranks, len(stepped)))
        if factor is not None:
            found.append(Brought(*about, ranks, factor))
    return found[0] if len(found) == 1 else None


class _Left:
    """What the last backward() of a window has left, on all ranks.

    What many ranks ask is worked out once: large models have many parameters,
    and large meshes many ranks and groups.
    """

    def __init__(self) -> None:
        self.numbers: dict[Key, dict[int, Sequence[float]]] = defaultdict(dict)
        """By parameter and rank; none where there was no gradient."""
        self._same: dict[Key, set[int]] = {}
        self._sums: dict[tuple[Key, tuple[int, ...], int], list[float]] = {}

    def sum(self, key: Key, ranks: tuple[int, ...], length: int) -> list[float]:
        """Of those of these ranks that have a gradient of so many numbers; empty where it is not to be asked for."""
        asked = (key, ranks, length)
        if asked not in self._sums:
            its, known = self.numbers[key], []
            if its.keys() >= set(ranks) and self._alike(key).isdisjoint(ranks):
                known = [its[number] for number in ranks if len(its[number]) == length]
            self._sums[asked] = [math.fsum(column) for column in zip(*known, strict=True)]
        return self._sums[asked]

    def _alike(self, key: Key) -> set[int]:
        """The ranks that had left the same as another: it was reduced within backward(), or comes of one batch."""
        if key not in self._same:
            found = self._same[key] = set[int]()
            lengths = [(math.hypot(*numbers), rank) for rank, numbers in self.numbers[key].items()]
            ordered = sorted((length, rank) for length, rank in lengths if 0 < length < math.inf)
            for place, (shorter, one) in enumerate(ordered):
                for longer, other in islice(ordered, place + 1, None):
                    if longer - shorter > ALIKE * longer:
                        break
                    if not (one in found and other in found) and self._are_like(key, one, other, longer):
                        found |= {one, other}
        return self._same[key]

    def _are_like(self, key: Key, rank: int, other: int, length: float) -> bool:
        one, its = self.numbers[key][rank], self.numbers[key][other]
        return len(one) == len(its) and math.dist(one, its) <= ALIKE * length


def _factor(stepped: Sequence[float], total: Sequence[float]) -> float | None:
    """By what a sum was multiplied; None where it was not, or there is none."""
    if len(total) != len(stepped):
        return None
    square = math.fsum(value * value for value in total)
    if not square or not math.isfinite(square):
        return None
    factor = math.fsum(a * b for a, b in zip(stepped, total, strict=True)) / square
    apart = math.dist(stepped, [factor * value for value in total])
    return factor if factor > 0 and apart <= EXACT * math.hypot(*stepped) else None


# --- whose tokens reach a parameter


@once_per_world
def exchanges(world: World) -> list[frozenset[int]]:
    """The ranks that have sent each other activations: by all-to-alls, or from one to another."""
    found: set[frozenset[int]] = set()
    for rank, call in world.of(ev.Call):
        if "all_to_all" in call.op:
            found.add(frozenset(happens_before.members(call.group, world.world_size)))
        elif call.op in ev.PAIRWISE and call.peer is not None:
            found.add(frozenset((rank.rank, call.peer)))
    return [one for one in found if len(one) > 1]


def serves_others(world: World, rank: Rank) -> bool:
    """Whether an all-to-all brings this rank what others have: what it has alone may be for the tokens of all."""
    return any("all_to_all" in call.op for call in rank.of(ev.Call))


def reach(world: World, ranks: Sequence[int]) -> frozenset[int]:
    """The ranks whose tokens may have a part in gradients that are added up over these."""
    found = frozenset(ranks)
    while True:
        more = found.union(*(one for one in exchanges(world) if one & found))
        if more == found:
            return found
        found = more


def together(world: World) -> Iterator[tuple[int, ...]]:
    """The ranks that bring gradients together in any way, set by set."""
    sets: list[frozenset[int]] = []
    for mine in {frozenset(one.over): None for one in brought(world)}:
        apart = [other for other in sets if not other & mine]
        sets = [*apart, mine.union(*(other for other in sets if other & mine))]
    yield from (tuple(sorted(one)) for one in sets if len(one) > 1)
