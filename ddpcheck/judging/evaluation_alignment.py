"""What several ranks evaluate without gradients, side by side: the same line, the same model, after the same step.

And between the same collectives of all ranks: those that make unequally many steps meet there, and nowhere else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.step_alignment import Replicas
from ddpcheck.judging.world import Rank, World

_OTHERS = ("wait", *ev.PAIRWISE)
"""Calls that are not made by all ranks of their group."""

Evaluation = list[tuple[Rank, ev.Evaluated]]
"""By rank."""
Model = tuple[tuple[int, int], ...]
"""By rank, the number of a module."""


def evaluations(world: World) -> Iterator[tuple[Replicas | None, Evaluation]]:
    """The same evaluation of the same model on all the ranks that made it, if more than one did; and its wrapper.

    A line may evaluate several models: those of a kind are matched by their
    order, where the ranks have equally many of them there. Stages of a pipeline
    are models of their own, though each may name its layers from zero.
    """
    wrappers = step_alignment.wrappers(world)
    places = {(rank.rank, one.of(rank)): place for place, one in enumerate(wrappers) for rank in one.ranks}
    by_place: dict[tuple[object, ...], dict[int, Evaluation]] = {}
    for rank in world:
        stages = {one.module: one.stage for one in rank.of(ev.Parallelised) if one.stage is not None}
        evaluated = rank.of(ev.Evaluated)
        calls = [
            (call.n, call.number)
            for call in (rank.of(ev.Call) if evaluated else ())
            if call.group == "world" and call.op not in _OTHERS
        ]
        for one in evaluated:
            site = rank.where(one.site)
            wrapper = None if one.wrapper is None else places.get((rank.rank, one.wrapper))
            if site is not None and (wrapper is None) == (one.wrapper is None):
                stage = stages.get(one.module)
                last = bisect_left(calls, (one.n, 0))
                collective = calls[last - 1][1] if last else -1
                key = (wrapper, site.file, site.line, one.number, collective, one.kind, stage, *one.parameters.names)
                by_place.setdefault(key, {}).setdefault(rank.rank, []).append((rank, one))
    for (place, *_), by_rank in by_place.items():
        if len(by_rank) > 1 and len({len(records) for records in by_rank.values()}) == 1:
            for records in zip(*by_rank.values(), strict=True):
                yield (wrappers[place] if isinstance(place, int) else None), list(records)


def model_of(records: Evaluation) -> Model:
    """What is evaluated, on each of the ranks."""
    return tuple((rank.rank, one.module) for rank, one in records)


def is_compared(records: Evaluation) -> bool:
    """Whether the ranks' models may be held against each other: none was a mere trial, or is trained by each alone."""
    dry = all(_is_dry_run(rank, one) for rank, one in records)
    return not dry and not any(one.stepped for _, one in records)


def _is_dry_run(rank: Rank, one: ev.Evaluated) -> bool:
    """Whether a module was tried out before a wrapper was built around it, whose constructor makes the ranks equal.

    So are shapes found, and the parameters of lazy modules made. What was evaluated on many inputs may have gone on
    into the training.
    """
    wraps = [w.n for w in rank.of(ev.Wrapped) if one.module in (w.module, *w.parts) and one.n < w.n]
    if one.wrapper is not None or one.module < 0 or not wraps:
        return False
    return not any(d.module == one.module and d.n < min(wraps) for d in rank.of(ev.EvaluatedOnData))
