"""Which optimizer of one rank is which of another's, and which parameter: ranks may build more, or in another order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from ddpcheck import evidence as ev
from ddpcheck.evidence import WIDTH
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank

Steps = dict[tuple[int, int], ev.Step]
"""By region and place."""
Phases = list[tuple[ev.Optimizer, Steps]]
"""An optimizer of one rank: each time that its parameters have changed, and the steps from there on."""
Wrappers = Mapping[int, Mapping[int, int]]
"""By rank, and by its own number of a wrapper, the wrapper's number among those that its whole group has."""


class Built(NamedTuple):
    """An optimizer where it was built."""

    rank: Rank
    phases: Phases

    @property
    def first(self) -> ev.Optimizer:
        return self.phases[0][0]


def paired(by_rank: Sequence[Sequence[Built]], wrappers: Wrappers) -> list[list[Built]]:
    """The optimizers that every rank has, one of each rank.

    What one rank has built besides, such as to try learning rates, is nobody's
    pair: the line and the wrappers tell it from the others, not its turn.
    """

    def over(one: Built) -> Hashable:
        return frozenset(
            wrappers[one.rank.rank].get(p.wrapper, -1 - p.wrapper)
            for p in one.first.parameters
            if p.wrapper is not None
        )

    def at(one: Built) -> Hashable:
        return over(one), one.rank.where(one.first.site), len(one.first.parameters)

    def of_size(one: Built) -> Hashable:
        return over(one), len(one.first.parameters)

    found: list[list[Built]] = []
    left = [list(ones) for ones in by_rank]
    for key in (at, of_size, over):
        found += _matched(left, key)
    # A rank that has built its optimizer anew: what steps the same wrappers is the same as far as the others have it.
    found += _matched([[one for one in ones if over(one)] for ones in left], over, equally=False)
    return sorted(found, key=lambda ones: ones[0].first.optimizer)


def _matched(left: list[list[Built]], key: Callable[[Built], Hashable], equally: bool = True) -> list[list[Built]]:
    """Those with a key that all ranks have equally often, in order, which are left no more."""
    sorted_in: list[dict[Hashable, list[Built]]] = []
    for ones in left:
        kept = by_key((key(one), one) for one in ones)
        sorted_in.append(kept)
    found: list[list[Built]] = []
    for same in sorted_in[0] if sorted_in else ():
        each = [kept.get(same, []) for kept in sorted_in]
        if equally and len({len(ones) for ones in each}) > 1:
            continue
        found += [list(ones) for ones in zip(*each, strict=False)]
        for ones in left:
            ones[:] = [one for one in ones if key(one) != same]
    return found


def in_order_of(first: ev.Optimizer, other: ev.Optimizer, wrappers: Sequence[Mapping[int, int]]) -> list[int] | None:
    """Where the other rank's optimizer has each parameter of the first's, as a set of them may mix them up.

    None where they are in the same places, or where it cannot be told: names
    tell it of wrapped parameters, within one group.
    """
    if first.groups != other.groups or len(first.parameters) != len(other.parameters):
        return None
    mine, theirs = [_keys(one, known) for one, known in zip((first, other), wrappers, strict=True)]
    if mine == theirs or None in mine or len(set(mine)) < len(mine) or set(mine) != set(theirs):
        return None
    places = {key: place for place, key in enumerate(theirs)}
    return [places[key] for key in mine]


def _keys(one: ev.Optimizer, wrappers: Mapping[int, int]) -> list[Hashable]:
    each = (number for number, size in enumerate(one.groups) for _ in range(size))
    group = list(islice(each, len(one.parameters) + 1))
    if len(group) != len(one.parameters):
        return [None]
    return [
        (group[place], wrappers[p.wrapper], p.name, p.kind) if p.wrapper is not None and p.wrapper in wrappers else None
        for place, p in enumerate(one.parameters)
    ]


def reordered(described: ev.Optimizer, steps: Steps, places: Sequence[int]) -> tuple[ev.Optimizer, Steps]:
    """An optimizer and its steps, with its parameters at these places instead."""

    def moved(digests: bytes) -> bytes:
        return b"".join(digests[place * WIDTH : (place + 1) * WIDTH] for place in places)

    replace = msgspec.structs.replace
    return (
        replace(
            described, parameters=[described.parameters[place] for place in places], values=moved(described.values)
        ),
        {
            key: replace(
                step,
                gradients=moved(step.gradients),
                parameters=moved(step.parameters),
                state={name: moved(digests) for name, digests in step.state.items()},
            )
            for key, step in steps.items()
        },
    )
