"""What worker processes hold of a dataset that the program has changed since they were given their copies of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import Pass, every_pass
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
    known = {(one.begun.loader, one.begun.number): one for one in passes}
    own: dict[int | None, dict[int, _Values]] = defaultdict(dict)
    for one in rank.of(ev.DatasetValues):
        own[one.loader][one.pass_] = one.values
    copies: dict[int | None, dict[int, list[_Values]]] = defaultdict(lambda: defaultdict(list))
    for one in (one for process in rank.workers for one in process.of(ev.DatasetValues)):
        loader, number = one.loader, one.pass_
        if loader is None:  # it was started afresh, and counts the passes of the loader that drew its base seed
            its = [key for key, its in known.items() if its.begun.base_seed == one.base_seed]
            loader, number = its[number] if number < len(its) else (None, 0)
        copies[loader][number].append(one.values)
    for loader, by_pass in own.items():
        first = min(by_pass)
        later = [number for number in sorted(by_pass) if number > first and (loader, number) in known]
        outdated = {
            number: _old_values(by_pass, copies[loader], first, number)
            if loader is not None and _give_the_same(known.get((loader, first)), known[loader, number])
            else []
            for number in later
        }
        numbers = [number for number, names in outdated.items() if names]
        if numbers and loader is not None and (loader, first) in known:
            since, read = known[loader, first], known[loader, numbers[0]]
            yield OldCopy(rank.rank, since, read, outdated[numbers[0]], len(numbers))


def _old_values(own: Mapping[int, _Values], copies: Mapping[int, list[_Values]], first: int, number: int) -> list[str]:
    """The names under which all workers hold what they held at first, and the program does not."""
    workers = [*copies.get(first, ()), *copies.get(number, ())]
    if not copies.get(first) or not copies.get(number):
        return []
    return [
        name
        for name, value in own[first].items()
        if own[number].get(name, value) != value and all(one.get(name) == value for one in workers)
    ]


def _give_the_same(first: Pass | None, later: Pass) -> bool:
    """Whether workers give what they gave at first: what the program changed has not come to them in another way.

    Of a stream that is its order, of a dataset with places what is at each of them, as far as both passes read it.
    """
    if first is None:
        return False
    if first.is_stream:
        pairs = list(zip(*([s.print_ for s in one.samples] for one in (first, later)), strict=False))
    else:
        at = {sample.place: sample.print_ for sample in first.samples}
        pairs = [(at[s.place], s.print_) for s in later.samples if s.place in at]
    return bool(pairs) and all(one is not None and one == other for one, other in pairs)
