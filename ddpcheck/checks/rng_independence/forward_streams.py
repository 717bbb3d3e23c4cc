"""The random states that forwards in training drew from, side by side on several ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ddpcheck import evidence as ev
from ddpcheck.judging.first_forwards import numbered
from ddpcheck.judging.world import Rank

Whose = tuple[str, str, int]
"""The same on all ranks: ``wrapper`` and its number; or ``model``, its class, and which of that class it is."""
Which = tuple[Whose, str, int]
"""A forward: whose, the kind of the stream, and its number."""
Drew = tuple[Rank, ev.Stream]


def by_forward(
    ranks: Iterable[Rank], models: Mapping[Rank, set[int]] | None = None, where: str = "forward"
) -> dict[Which, list[Drew]]:
    """What these ranks drew from; ``models``: of these alone, by the numbers that each rank has for them.

    ``where``: in the forward, or before it since a ``batch`` was handed out.
    """
    found: dict[Which, list[Drew]] = defaultdict(list)
    for rank in ranks:
        names = numbered(rank)
        for stream in rank.of(ev.Stream):
            if stream.where != where or not stream.consumed:
                continue
            if stream.wrapper is not None:
                found[("wrapper", "", stream.wrapper), stream.kind, stream.number].append((rank, stream))
            elif stream.model in names and (models is None or stream.model in models[rank]):
                found[("model", *names[stream.model]), stream.kind, stream.number].append((rank, stream))
    return found
