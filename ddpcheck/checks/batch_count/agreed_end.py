"""Did ranks whose loaders ran out at different batches keep step all the same? Their calls after the end show it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.call_divergence import Calls, key, partings, sequences
from ddpcheck.judging.happens_before import members
from ddpcheck.judging.loader_passes import Pass
from ddpcheck.judging.world import World

FIRST = 8
"""Of many passes, so many and the last are looked at."""

Sequences = Mapping[str, Mapping[int, Calls]]
"""The calls by group, rank and number."""


def came_through(world: World) -> bool:
    """Whether all ranks came to their ends by themselves, and made the same calls: nothing was waited for in vain."""
    return not was_stopped(world) and not partings(world)


def was_stopped(world: World) -> bool:
    """Whether the program hung, failed, or was ended."""
    return any(
        rank.signal is not None or rank.exit_code not in (0, None) or rank.of(ev.Raised) or not rank.of(ev.Ended)
        for rank in world
    )


def in_step(world: World, uneven: Sequence[Mapping[int, Pass]]) -> bool:
    """Whether each rank that had run out went on to meet those that had batches left, before it did anything else.

    So it is where the ranks agree on the end (a flag that is reduced before
    every step), and where one that has run out goes on with empty batches.
    """
    found = sequences(world)
    # Where nothing was stuck, ranks that have run out may have a loop of their own in which they meet the others.
    same_line = not came_through(world)
    looked = [*uneven[:FIRST], uneven[-1]]
    met = [one for passes in looked for one in _met(found, world.world_size, passes, same_line)]
    return bool(met) and all(met)


def _met(found: Sequences, world_size: int, passes: Mapping[int, Pass], same_line: bool) -> Iterator[bool]:
    """For each batch that one rank had and another had not: whether both made the same call for it.

    Nothing for one that no call on record was made for.
    """
    for rank, long in passes.items():
        for other, short in passes.items():
            if not short.exhausted or short.ended is None or short.taken >= long.taken:
                continue
            again = min((p.n for p in short.rank.of(ev.Pass) if p.n > short.ended.n), default=math.inf)
            calls = _between(found, world_size, rank, other)
            numbers = [call.n for call in calls]
            for batch in long.batches:
                place = bisect_right(numbers, batch.n)
                if batch.number < short.taken or place == len(calls) or numbers[place] > long.end:
                    continue
                mine = calls[place]
                theirs = found[mine.group].get(other, {}).get(mine.number)
                yield (
                    theirs is not None
                    and key(theirs) == key(mine)
                    and short.ended.n < theirs.n < again
                    and (not same_line or short.rank.where(theirs.site) == long.rank.where(mine.site))
                )


def _between(found: Sequences, world_size: int, rank: int, other: int) -> list[ev.Call]:
    """The calls of a rank on groups that another one is in, in order."""
    calls = [
        call
        for group, by_rank in found.items()
        if {rank, other} <= set(members(group, world_size))
        for call in by_rank.get(rank, {}).values()
    ]
    return sorted(calls, key=lambda call: call.n)
