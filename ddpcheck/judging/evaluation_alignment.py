"""What several ranks evaluate without gradients, side by side: the same line, the same model, after the same step."""

from __future__ import annotations

from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.step_alignment import Replicas
from ddpcheck.judging.world import Rank, World

Evaluation = list[tuple[Rank, ev.Evaluated]]
"""By rank."""


def evaluations(world: World) -> Iterator[tuple[Replicas | None, Evaluation]]:
    """The same evaluation of the same model on all the ranks that made it, if more than one did; and its wrapper.

    A line may evaluate several models: those of a kind are matched by their
    order, where the ranks have equally many of them there.
    """
    wrappers = step_alignment.wrappers(world)
    places = {(rank.rank, one.of(rank)): place for place, one in enumerate(wrappers) for rank in one.ranks}
    by_place: dict[tuple[object, ...], dict[int, Evaluation]] = {}
    for rank in world:
        for one in rank.of(ev.Evaluated):
            site = rank.where(one.site)
            wrapper = None if one.wrapper is None else places.get((rank.rank, one.wrapper))
            if site is not None and (wrapper is None) == (one.wrapper is None):
                key = (wrapper, site.file, site.line, one.number, one.kind, *one.parameters.names)
                by_place.setdefault(key, {}).setdefault(rank.rank, []).append((rank, one))
    for (place, *_), by_rank in by_place.items():
        if len(by_rank) > 1 and len({len(records) for records in by_rank.values()}) == 1:
            for records in zip(*by_rank.values(), strict=True):
                yield (wrappers[place] if isinstance(place, int) else None), list(records)
