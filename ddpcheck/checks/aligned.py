"""The same wrapper, optimizer and step on every rank: what steps are compared by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.world import Rank, World

WIDTH = 8
"""Bytes of one tensor's digest."""

ABSENT = bytes(WIDTH)


class Aligned(NamedTuple):
    """One optimizer on all ranks."""

    number: int
    described: list[ev.Optimizer]
    """Rank by rank, as it was at its first step."""
    steps: list[dict[tuple[int, int], ev.Step]]
    """Rank by rank: the steps on record, by region and place."""

    def common(self) -> Iterator[tuple[int, list[ev.Step]]]:
        """The steps that every rank has on record, in order, each with its number on the first rank."""
        for key in sorted(set(self.steps[0]).intersection(*self.steps[1:])):
            yield self.steps[0][key].number, [steps[key] for steps in self.steps]

    def compared(self) -> Iterator[tuple[int, list[ev.Step]]]:
        """Of these, the ones of which all ranks have looked at the same parts."""
        for number, steps in self.common():
            if all(s.parameters for s in steps) and len({(s.whole, len(s.parameters)) for s in steps}) == 1:
                yield number, steps

    @property
    def kind(self) -> str:
        return self.described[0].kind


def optimizers(world: World) -> list[Aligned]:
    """The optimizers that stepped on every rank of the world, matched by the order of their construction."""
    if len(world) < 2:
        return []
    described: list[dict[int, ev.Optimizer]] = []
    for rank in world:
        first: dict[int, ev.Optimizer] = {}
        for one in rank.of(ev.Optimizer):
            first.setdefault(one.optimizer, one)
        described.append(first)
    steps: list[dict[int, dict[tuple[int, int], ev.Step]]] = []
    for rank in world:
        by_place: dict[int, dict[tuple[int, int], ev.Step]] = {}
        for step in rank.of(ev.Step):
            by_place.setdefault(step.optimizer, {})[step.region, step.place] = step
        steps.append(by_place)
    return [
        Aligned(number, [d[number] for d in described], [s.get(number, {}) for s in steps])
        for number in sorted(set(described[0]).intersection(*described[1:]))
        if len({len(d[number].parameters) for d in described}) == 1
    ]


def wrappers(world: World) -> list[tuple[int, list[ev.Wrapped]]]:
    """The wrappers that every rank has built, by number."""
    if not len(world):
        return []
    each = [{w.wrapper: w for w in rank.of(ev.Wrapped)} for rank in world]
    return [(n, [e[n] for e in each]) for n in sorted(set(each[0]).intersection(*each[1:]))]


def members(world: World, group: str) -> list[Rank]:
    """The ranks of a group."""
    if group == "world":
        return list(world)
    wanted = {int(r) for r in group.partition("#")[0].split(",") if r.isdigit()}
    return [rank for rank in world if rank.rank in wanted]


def differing(digests: Sequence[bytes]) -> list[int]:
    """The places at which the ranks' digests are not all equal."""
    first = digests[0]
    if all(d == first for d in digests):
        return []
    length = min(map(len, digests)) // WIDTH
    return [place for place in range(length) if len({d[place * WIDTH : (place + 1) * WIDTH] for d in digests}) > 1]


def at(digests: bytes, place: int) -> bytes:
    """One tensor's digest."""
    return digests[place * WIDTH : (place + 1) * WIDTH]


def odd_ranks(digests: Sequence[bytes], places: Sequence[int], ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks that are not of the most common opinion; of equally common ones, not those of the lowest rank's."""
    opinions: dict[bytes, list[int]] = {}
    for rank, said in zip(ranks, digests, strict=True):
        opinions.setdefault(b"".join(at(said, p) for p in places), []).append(rank)
    usual = max(opinions.values(), key=lambda who: (len(who), -min(who)))
    return tuple(r for r in ranks if r not in usual)
