"""Evidence of ranks that clip their gradients, written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ddpcheck import evidence as ev
from ddpcheck.judging.world import World
from tests.judging.sharded_models import layout, optimizer, stepped
from tests.judging.written import Made, world

Squares = Sequence[Sequence[Sequence[float]]]
"""By window, rank and parameter, the sum of squares of what the rank has of its gradient."""
Norms = Callable[[Sequence[Sequence[float]]], Sequence[float]]
"""Of the squares of one window, rank by rank the norm by which it clips."""

SQUARES: Squares = [
    [[4.0, 1.0], [4.0, 9.0]],
    [[9.0, 1.0], [9.0, 2.0]],
    [[1.0, 5.0], [1.0, 7.0]],
    [[2.0, 8.0], [2.0, 3.0]],
]
"""The first parameter has the same gradient on both ranks."""


def norm(
    number: int, squares: Sequence[float], factor: float | None, how: str = "clip_grad_norm_", **more: Any
) -> Made:
    """A measurement at line 7, before the step of line 9."""
    norms = ev.packed([math.sqrt(one) for one in squares])
    given = {"optimizer": 0, "moment": number, "site": 7, "norms": norms, "step_site": 9, **more}
    return ev.Norm, {"number": number, "how": how, "factor": factor, **given}


def of_all(squares: Sequence[Sequence[float]]) -> list[float]:
    """The root of all squares of all ranks."""
    return [math.sqrt(math.fsum(map(math.fsum, squares)))] * len(squares)


def of_each(squares: Sequence[Sequence[float]]) -> list[float]:
    """Each rank's own norm."""
    return [math.sqrt(math.fsum(one)) for one in squares]


def with_first_once(squares: Sequence[Sequence[float]]) -> list[float]:
    """The root of all squares, where both ranks have the first parameter alike."""
    return [math.sqrt(math.fsum(map(math.fsum, squares)) - squares[0][0])] * len(squares)


def clipped(
    where: Sequence[Any],
    by: Norms,
    how: str = "hand",
    squares: Squares = SQUARES,
    bound: float = 0.5,
    before: Callable[[int], list[Made]] = lambda _: [],
    described: dict[str, Any] | None = None,
    **more: Any,
) -> World:
    """Ranks that clip by some norm in every window.

    ``where``: by parameter its layout, or a function of the rank. ``how``: by
    ``hand``; by ``torch``'s function; by torch's function for a ``DTensor``, whose norm
    is not read.
    """
    ranks: list[list[Made]] = []
    for rank in range(len(squares[0])):
        layouts = {f"w{place}": one(rank) if callable(one) else one for place, one in enumerate(where)}
        records = [*before(rank), optimizer(3, layouts, **(described or {}))]
        for number, of_ranks in enumerate(squares):
            came = by(of_ranks)[rank]
            factor = min(1.0, bound / came)
            given = {"largest": bound, **({"came": came} if how == "torch" else {})} if how != "hand" else {}
            kind = "all_reduce" if how == "hand" else "clip_grad_norm_"
            own = {name: value(of_ranks, rank) if callable(value) else value for name, value in more.items()}
            records += [norm(number, of_ranks[rank], factor, kind, **given, **own), stepped(9, number, list(layouts))]
        ranks.append(records)
    return world(*ranks)


def shard(rank: int) -> ev.Layout:
    """What FSDP1 has dealt out to two ranks."""
    return ev.Layout(ground="FSDP", placements=("F",), among=(0, 1), holders=(rank,))


def slices(rank: int) -> ev.Layout:
    """A tensor that two ranks hold slices of."""
    return layout(rank, [2], ["S0"])


def copies(rank: int) -> ev.Layout:
    return layout(rank, [2], ["R"])


def stage(rank: int) -> list[Made]:
    """One of two stages of a pipeline."""
    return [(ev.Parallelised, {"how": "PipelineStage", "site": 2, "stage": rank, "stages": 2, "pipeline": (0, 1)})]
