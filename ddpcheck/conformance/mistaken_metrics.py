"""What a metric comes to where it is evaluated by certain mistakes, on the same outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

Metric = Callable[[Tensor, Tensor], float]


def mistaken(metric: Metric, outputs: Tensor, targets: Tensor, rank: int, world_size: int) -> dict[str, float]:
    """The values by name; the samples are dealt out to the ranks one by one."""
    number = len(outputs)
    padded = [place % number for place in range(number + -number % world_size)]

    def of(places: Sequence[int]) -> float:
        return float(metric(outputs[list(places)], targets[list(places)]))

    def mean(places: Sequence[int]) -> float:
        return sum(of(places[other::world_size]) for other in range(world_size)) / world_size

    found = {"repeated": of(padded), "left out": of(range(number - number % world_size))}
    if number >= world_size:
        parts = range(number)
        found |= {"own": of(parts[rank::world_size]), "mean": mean(parts), "mean of padded": mean(padded)}
    return found
