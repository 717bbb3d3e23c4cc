"""The steps at which the ranks' digests differ, and what a finding names with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank
from ddpcheck.vocabulary.model import CallSite

Compared = Sequence[tuple[int, list[ev.Step]]]
Broken = tuple[int, list[ev.Step], list[int]]
"""A step, what each rank has recorded of it, and the places that differ."""


def broken(steps: Compared, wanted: Collection[int], part: Callable[[ev.Step], bytes]) -> list[Broken]:
    """The steps at which something differs at these places."""
    each = ((number, step, step_alignment.differing([part(s) for s in step])) for number, step in steps)
    return [(number, step, kept) for number, step, places in each if (kept := [p for p in places if p in wanted])]


def parts(
    optimizer: Aligned, steps: Compared, places: Sequence[int], of: Callable[[ev.Step], bytes]
) -> list[tuple[list[Broken], int]]:
    """The steps at which something differs, for each wrapper, which may have a fault of its own, and for what the
    program reduces itself; and how many parameters each of them has."""
    found = [(broken(steps, part, of), len(part)) for part in optimizer.by_wrapper(places).values()]
    return [(steps_of_it, wanted) for steps_of_it, wanted in found if steps_of_it]


def odd_site(ranks: Sequence[Rank], odd: Sequence[int], step: Sequence[ev.Step]) -> CallSite | None:
    for rank, s in zip(ranks, step, strict=True):
        if rank.rank in odd:
            return rank.where(s.site)
    return ranks[0].where(step[0].site)


def wrapper_links(optimizer: Aligned, places: Iterable[int] | None = None) -> tuple[str, ...]:
    """The wrappers that hold some of the parameters that an optimizer updates, or all of them, as links."""
    parameters = optimizer.described[0].parameters
    chosen = parameters if places is None else [parameters[place] for place in places]
    return tuple(sorted({f"wrapper {p.wrapper}" for p in chosen if p.wrapper is not None}))


def states(step: Sequence[ev.Step]) -> dict[str, list[bytes]]:
    """By key, the digests of the optimizer's state that every rank has told of, rank by rank."""
    keys = [key for key in step[0].state if all(key in s.state for s in step)]
    return {key: [s.state[key] for s in step] for key in keys}
