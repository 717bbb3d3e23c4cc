"""Passes that come in one order, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ddpcheck.evidence.epochs import SamplerPass

NO_CHANCE = 10
"""Samples whose order does not come twice by chance: ten have 3.6 million orders."""

SET_EPOCH = "Call loader.sampler.set_epoch(epoch) at the start of every epoch."


def repetition(passes: Sequence[SamplerPass], distributed: bool = True) -> tuple[int, int] | None:
    """The first two passes with one order, where that is no chance; ``distributed`` where the sampler has an epoch.

    A second look at an epoch (to evaluate, say) is no fault as long as there is another epoch.
    """
    never_set = len({one.epoch for one in passes}) == 1
    earlier: dict[tuple[str, int], list[int]] = {}
    for number, one in enumerate(passes):
        for before in earlier.get((one.order, one.length), ()):
            another_epoch = passes[before].epoch != one.epoch
            by_chance = one.length < NO_CHANCE and (another_epoch or not distributed)
            if one.length > 1 and not by_chance and (another_epoch or never_set):
                return before, number
        earlier.setdefault((one.order, one.length), []).append(number)
    return None


def compared(passes: Sequence[SamplerPass], distributed: bool = True) -> int:
    """How many of these have an order that another one before could have had: of as many samples, in another epoch."""
    never_set = len({one.epoch for one in passes}) == 1
    alike: dict[int, list[int | None]] = defaultdict(list)
    for one in passes:
        if one.length >= NO_CHANCE or (one.length > 1 and distributed and never_set):
            alike[one.length].append(one.epoch)
    return sum((len(epochs) if never_set else len(set(epochs))) - 1 for epochs in alike.values())


def why(first: SamplerPass, second: SamplerPass, distributed: bool = True) -> tuple[str, str]:
    """The cause of two passes in one order, and the fix."""
    if not distributed:
        return (
            "the random state that it shuffles with was the same both times",
            "Do not seed the sampler's generator (or the global one) with the same number in every epoch.",
        )
    cause = f"the sampler's order does not depend on its epoch ({first.epoch}, then {second.epoch})"
    if first.epoch == second.epoch:
        both = f"the epoch was {first.epoch} both times"
        cause = f"set_epoch was not called between them, or with the same number: {both}"
    return cause, SET_EPOCH
