"""How many batches the sizes imply, and why ranks have other numbers of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddpcheck.vocabulary.wording import count

LEFT = "A rank with fewer batches leaves the others in a collective that never completes"


class Loaded(NamedTuple):
    """What one rank's batches are made of."""

    size: int | None
    """Samples in the dataset; None for a stream."""
    batch_size: int | None
    drop_last: bool
    sampler_drops: bool
    dataset: str = ""
    sampler: str = ""
    """The class of what decides."""
    of_a_share: bool = False
    """It makes batches of the samples that another sampler has given the rank."""


def implied(size: int, world_size: int, batch_size: int, drop_last: bool, sampler_drops: bool) -> int:
    """The number of batches of each rank: the sampler shares out and pads (or drops), the loader batches."""
    share = size // world_size if sampler_drops else -(-size // world_size)
    return share // batch_size if drop_last else -(-share // batch_size)


def wanted(expected: int | None, first: Loaded | None, ranks: int) -> str:
    """What the ranks' numbers should be, as the end of "expected …"."""
    if expected is None or first is None:
        return "the same number of batches on every rank"
    dropped = " with drop_last" if first.drop_last else ""
    return (
        f"{count(expected, 'batch', 'batches')} on every rank ({count(first.size or 0, 'sample')} on "
        f"{count(ranks, 'rank')}, batches of {first.batch_size}{dropped})"
    )


def why(loaded: Sequence[Loaded]) -> str:
    """Why the ranks have unequal numbers; empty where that does not show."""
    if not loaded:
        return ""
    if loaded[0].size is None and loaded[0].dataset:
        return f"each rank's {loaded[0].dataset} ends when its own part of the data does"
    for name, values in (
        ("dataset sizes", [one.size for one in loaded]),
        ("batch sizes", [one.batch_size for one in loaded]),
        ("settings of drop_last", [one.drop_last for one in loaded]),
    ):
        if len(set(values)) > 1:
            return f"the ranks have different {name} ({', '.join(map(str, values))})"
    decides = loaded[0].sampler
    if loaded[0].of_a_share:
        return f"{decides} makes the batches on each rank of that rank's samples alone, and their number differs"
    if decides not in ("", "DistributedSampler"):
        return f"the parts that {decides} gives the ranks make different numbers of batches"
    return ""
