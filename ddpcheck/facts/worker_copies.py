"""What worker processes hold of a dataset that the program has changed since they were given their copies of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import Pass, every_pass, worker_passes
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World

_Values = Mapping[str, bytes]


class OldCopy(NamedTuple):
    """A pass whose workers go on with what the dataset was when an earlier one began."""

    rank: int
    since: Pass
    """The one at which the workers were given their copies."""
    read: Pass
    """The first one for which they hold something else than the program."""
    names: list[str]
    """What they hold otherwise."""
    times: int
    """Passes in which it is so."""


@once_per_world
def of(world: World) -> list[OldCopy]:
    """By rank and loader, the copies that are out of date in a way that workers themselves have no part in."""
    return [one for rank, passes in zip(world, every_pass(world), strict=True) for one in _of_rank(rank, passes)]


def _of_rank(rank: Rank, passes: list[Pass]) -> Iterator[OldCopy]:
    pass_of = worker_passes(passes)
    own: dict[int, list[tuple[Pass, _Values]]] = defaultdict(list)
    for record in rank.of(ev.DatasetValues):
        if (one := pass_of(record)) is not None:
            own[one.begun.loader].append((one, record.values))
    copies: dict[Pass, list[_Values]] = defaultdict(list)
    for record in (record for process in rank.workers for record in process.of(ev.DatasetValues)):
        if (one := pass_of(record)) is not None:
            copies[one].append(record.values)
    for (first, values), *later in own.values():
        old = {
            one: names
            for one, current in later
            if (names := _old_values(values, current, copies[first], copies[one])) and _give_the_same(first, one)
        }
        for one, names in [*old.items()][:1]:
            yield OldCopy(rank.rank, first, one, names, len(old))


def _old_values(first: _Values, current: _Values, at_first: Sequence[_Values], now: Sequence[_Values]) -> list[str]:
    """The names under which all workers hold what they held at first, and the program does not."""
    if not at_first or not now:
        return []
    return [
        name
        for name, value in first.items()
        if current.get(name, value) != value and all(one.get(name) == value for one in (*at_first, *now))
    ]


def _give_the_same(first: Pass, later: Pass) -> bool:
    """Whether workers give what they gave at first: what the program changed has not come to them in another way.

    Of a stream that is its order, of a dataset with places what is at each of them, as far as both passes read it.
    """
    if first.is_stream:
        pairs = list(zip(*([s.print_ for s in one.samples] for one in (first, later)), strict=False))
    else:
        at = {sample.place: sample.print_ for sample in first.samples}
        pairs = [(at[s.place], s.print_) for s in later.samples if s.place in at]
    return bool(pairs) and all(one is not None and one == other for one, other in pairs)
