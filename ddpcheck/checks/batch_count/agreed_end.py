"""Did ranks whose loaders ran out at different batches keep step all the same? Their calls after the end show it."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.facts.passes import Pass
from ddpcheck.judging.call_divergence import Calls, keys, partings, sequences
from ddpcheck.judging.happens_before import members
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


def in_step(world: World, passes: Mapping[int, Sequence[Pass]], uneven: Sequence[Mapping[int, Pass]]) -> bool:
    """Whether each rank that had run out went on to meet those that had batches left, for each of these.

    So it is where the ranks agree on the end (a flag that is reduced before
    every step), where one that has run out goes on with empty batches, and
    where it begins its loader again at once, until all have made as many steps.
    """
    found = sequences(world)
    # Where nothing was stuck, ranks that have run out may have a loop of their own in which they meet the others.
    same_line = not came_through(world)
    met: list[bool] = []
    for left in (*_remaining_in_passes([*uneven[:FIRST], uneven[-1]]), *_remaining_at_end(passes)):
        met += _matching_calls(world, found, left, same_line)
    # A batch that no call was made for was handed out and left alone, where its loop makes calls for others.
    return all(met) and (bool(met) or all(one.collectives for its in uneven for one in its.values()))


class _RemainingBatches(NamedTuple):
    """Batches that a rank had when another one had run out."""

    long: Pass
    batches: Sequence[ev.Batch]
    short: Pass
    at_last: bool = False
    """Of these, the ones that were left when that had its last end."""


def _remaining_in_passes(uneven: Sequence[Mapping[int, Pass]]) -> Iterator[_RemainingBatches]:
    """Of passes of one number, what the longer ones had more."""
    for passes in uneven:
        for long, short in itertools.permutations(passes.values(), 2):
            if short.exhausted and short.taken < long.taken:
                yield _RemainingBatches(long, [batch for batch in long.batches if batch.number >= short.taken], short)


def _remaining_at_end(passes: Mapping[int, Sequence[Pass]]) -> Iterator[_RemainingBatches]:
    """The last pass of each rank, beside one that came to the end of its last."""
    for longer, shorter in itertools.permutations(passes.values(), 2):
        if shorter[-1].exhausted:
            yield _RemainingBatches(longer[-1], longer[-1].batches, shorter[-1], at_last=True)


def _matching_calls(world: World, found: Sequences, left: _RemainingBatches, same_line: bool) -> Iterator[bool]:
    """For each of these batches: whether both ranks made the same call for it.

    Nothing for one that no call on record was made for, or that the other rank may still come to.
    """
    long, batches, short, at_last = left
    rank, other = long.rank.rank, short.rank.rank
    end = short.end
    calls = _between(found, world.world_size, rank, other)
    numbers = [call.n for call in calls]
    again, further = _after(short, end)
    for batch in batches:
        place = bisect_right(numbers, batch.n)
        if place == len(calls) or numbers[place] > long.end:
            continue
        mine = calls[place]
        theirs = found[mine.group].get(other, {}).get(mine.number)
        if theirs is None:
            if world.now is None or short.rank.gone:
                yield False
            continue
        if at_last and theirs.n < end:
            continue
        before = found[mine.group][other].get(mine.number - 1)
        handed = bisect_right(further, theirs.n) > bisect_right(further, before.n if before is not None else 0)
        yield (
            len(set(keys({0: theirs, 1: mine}).values())) == 1
            and end < theirs.n
            and (theirs.n < again or handed)
            and (not same_line or short.rank.where(theirs.site) == long.rank.where(mine.site))
        )


def _after(short: Pass, end: float) -> tuple[float, list[int]]:
    """The ``n`` at which a rank that had run out began to go through anything, and those of its next batches.

    These are of any loader that was made at the same line: there may be one for each pass.
    """
    rank = short.rank
    made = {one.loader: rank.where(one.site) for one in rank.process.of(ev.Loader)}
    where = made.get(short.begun.loader)
    again = min((one.n for one in rank.of(ev.Pass) if one.n > end), default=math.inf)
    return again, [one.n for one in rank.of(ev.Batch) if one.n > end and made.get(one.loader) == where]


def _between(found: Sequences, world_size: int, rank: int, other: int) -> list[ev.Call]:
    """The calls of a rank on groups that another one is in, in order."""
    calls = [
        call
        for group, by_rank in found.items()
        if {rank, other} <= set(members(group, world_size))
        for call in by_rank.get(rank, {}).values()
    ]
    return sorted(calls, key=lambda call: call.n)
