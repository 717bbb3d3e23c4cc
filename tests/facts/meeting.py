"""Evidence of ranks that step copies for themselves and meet now and then, written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ddpcheck import evidence as ev
from ddpcheck.evidence.sketches import NUMBERS
from ddpcheck.judging.world import World
from tests.facts.trained import Vector, own, trained, word
from tests.judging.sharded_models import digest
from tests.judging.written import Made

LINE = 20
"""Of the exchange."""

Ends = Mapping[int, Vector]
"""By rank, what the step before has left of a tensor."""
Meets = Callable[[int, str, Ends, Vector], Vector]
"""What a rank's copy is after a meeting: by its number, the tensor, all ends, and what it was at the last meeting."""


def mean(_: int, __: str, ends: Ends, ___: Vector) -> Vector:
    """That of all ranks."""
    found: Vector = np.mean(list(ends.values()), axis=0)
    return found


def kept(rank: int, _: str, ends: Ends, __: Vector) -> Vector:
    """Its own."""
    return ends[rank]


def over(*groups: Sequence[int]) -> Meets:
    """The mean of each rank's group."""

    def meets(rank: int, _: str, ends: Ends, __: Vector) -> Vector:
        found: Vector = np.mean([ends[one] for one in next(its for its in groups if rank in its)], axis=0)
        return found

    return meets


def ranks_that_meet(
    meets: Mapping[str, Meets],
    *,
    ranks: int = 2,
    steps: int = 9,
    every: int = 2,
    times: Callable[[int, str, Meets], Meets] = lambda _, __, one: one,
    sketched: int = 100,
    elements: int | Mapping[str, int] = 64,
    line: Callable[[int], int] = lambda _: LINE,
    exchanges: Callable[[int], Sequence[Made]] = lambda _: (),
    **more: Any,
) -> World:
    """Ranks that train tensors of these names, and meet before every second step.

    ``times``: what is done at a meeting by its number, tensor and what is done else. ``sketched``: the steps that are
    looked at in full; of later ones digests are known. ``line``: that of the exchange before a step.
    """

    @cache
    def holds(name: str, number: int) -> tuple[dict[int, Vector], dict[int, Vector], dict[int, Vector]]:
        """By rank, what it holds when a window begins and when it ends, and what it was when ranks had last met."""
        if not number:
            begun = dict.fromkeys(range(ranks), draw(name, -1, 0) * 10)
            comes, last = begun, begun
        else:
            _, ends, last = holds(name, number - 1)
            comes = ends
            if number % every == 0:
                meets_then = times(number // every, name, meets[name])
                comes = {rank: meets_then(rank, name, ends, last[rank]) for rank in ends}
                last = comes
        return comes, {rank: one + draw(name, number, rank) for rank, one in comes.items()}, last

    def draw(name: str, number: int, rank: int) -> Vector:
        found: Vector = np.random.default_rng([ord(name[0]), number + 1, rank]).normal(size=NUMBERS)
        found[elements if isinstance(elements, int) else elements[name] :] = 0
        return found

    def copies(rank: int, number: int, name: str) -> tuple[Vector, Vector]:
        comes, ends, _ = holds(name, number)
        return comes[rank], ends[rank]

    def exchanged(rank: int) -> list[Made]:
        return [
            (ev.AfterExchange, {
                "optimizer": 0, "number": number, "groups": ["world"], "sites": [line(number)],
                "values": b"".join(digest(word(copies(rank, number, name)[0])) for name in meets),
            })
            for number in range(every, steps, every)
        ]  # fmt: skip

    return trained(
        dict.fromkeys(meets, own),
        ranks=ranks,
        steps=steps,
        copies=copies,
        elements=elements,
        looked=lambda _, number: number < sketched,
        after=lambda rank: [*exchanged(rank), *exchanges(rank)],
        **more,
    )
