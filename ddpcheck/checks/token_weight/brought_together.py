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
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import happens_before
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World

EXACT = 2e-3
"""By how much of itself what is worked out may be off; of arithmetic in 16 bits, which makes more, nothing is said."""

Key = tuple[str, str, str]
"""The class of a model, a parameter's name in there, and its dtype and shape."""
Looks = dict[int, dict[Key, list[float]]]
"""By rank and parameter: the sums of its gradient, zeros where it had none."""


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
    left: dict[int, Looks] = defaultdict(lambda: defaultdict(dict))
    steps: list[tuple[Rank, ev.GradientSums]] = []
    for rank in world:
        kinds = {one.model: one.kind for one in rank.of(ev.Model)}
        for record in rank.of(ev.GradientSums):
            if record.optimizer is not None:
                steps.append((rank, record))
                continue
            for one in record.each:
                left[record.window][rank.rank][_key(kinds, one)] = one.numbers or []
    groups = {rank.rank: _groups(world, rank) for rank in world}
    return [
        found
        for rank, record in steps
        for one in record.each
        if (found := _of(world, rank, record, one, left[record.window], groups[rank.rank])) is not None
    ]


def _key(kinds: dict[int, str], one: ev.Sums) -> Key:
    return kinds.get(one.model, ""), one.path, one.kind


def _groups(world: World, rank: Rank) -> list[tuple[int, ...]]:
    """Rank sets over which this rank may have added something up: itself, and those of its own collectives."""
    names = dict.fromkeys(one.group for one in rank.of(ev.Call) if "reduce" in one.op)
    sets = {happens_before.members(name, world.world_size) for name in names}
    return [(rank.rank,), *sorted((one for one in sets if rank.rank in one and len(one) > 1), key=len)]


def _of(
    world: World, rank: Rank, record: ev.GradientSums, one: ev.Sums, left: Looks, groups: Sequence[tuple[int, ...]]
) -> Brought | None:
    key = _key({model.model: model.kind for model in rank.of(ev.Model)}, one)
    stepped = one.numbers
    assert record.optimizer is not None
    if not stepped or not any(stepped):
        return None
    about = (rank, record.window, record.optimizer, one.model, one.path)
    if one.over:
        factor = _factor(stepped, [left[rank.rank].get(key, [])])
        return Brought(*about, tuple(one.over), factor / one.divisor) if factor is not None and one.divisor else None
    found = []
    for ranks in groups:
        each = [left[number].get(key) for number in ranks]
        known = [numbers for numbers in each if numbers is not None]
        if len(known) < len(ranks) or _is_shared(left, key, ranks):
            continue
        factor = _factor(stepped, known)
        if factor is not None:
            found.append(Brought(*about, ranks, factor))
    return found[0] if len(found) == 1 else None


def _is_shared(left: Looks, key: Key, ranks: Sequence[int]) -> bool:
    """Whether some rank had left the same as one of these: it was reduced within backward(), or comes of one batch."""
    for number in ranks:
        for other, its in left.items():
            if other != number and its.get(key) and _are_like(its[key], left[number].get(key, [])):
                return True
    return False


def _are_like(one: Sequence[float], other: Sequence[float]) -> bool:
    length = math.hypot(*one)
    return len(one) == len(other) and length > 0 and math.dist(one, other) <= EXACT / 10 * length


def _factor(stepped: Sequence[float], each: Sequence[Sequence[float]]) -> float | None:
    """By what the sum of these was multiplied; None where it was not."""
    known = [numbers for numbers in each if len(numbers) == len(stepped)]
    if not known:
        return None
    total = [math.fsum(column) for column in zip(*known, strict=True)]
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
    for rank in world:
        for call in rank.of(ev.Call):
            if "all_to_all" in call.op:
                found.add(frozenset(happens_before.members(call.group, world.world_size)))
            elif call.op in ev.PAIRWISE and call.peer is not None:
                found.add(frozenset((rank.rank, call.peer)))
    return [one for one in found if len(one) > 1]


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
    sets: list[set[int]] = []
    for one in brought(world):
        mine = set(one.over)
        apart = [other for other in sets if not other & mine]
        sets = [*apart, mine.union(*(other for other in sets if other & mine))]
    yield from (tuple(sorted(one)) for one in sets if len(one) > 1)
