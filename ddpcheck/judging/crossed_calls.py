"""Calls that match and come from different lines on the ranks: whether these are one call of the program."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations

from ddpcheck import evidence as ev
from ddpcheck.judging.call_divergence import Calls, Key, Parting, keys, sequences
from ddpcheck.judging.happens_before import NEW_GROUP, members
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Struct

WITHOUT_DATA = frozenset({"barrier", "monitored_barrier", NEW_GROUP, "join"})
"""Calls that carry nothing from rank to rank: any two of them may meet."""

_MOMENTS: tuple[type[ev.Record], ...] = (ev.Batch, ev.Pass, ev.PassEnded, ev.Step)
"""Records that do not stand between calls of one moment."""

Way = tuple[tuple[CallSite, ...], Key]
"""The line of a call with the lines that led to it, and what it has to have in common with others'."""

Stretch = dict[int, dict[int, Way]]
"""Matching calls of one moment by their number, with the way of each rank."""


class Crossing(Struct, frozen=True, kw_only=True):
    """Two ranks that call one line in the same moment, and whose calls of it never meet each other."""

    way: tuple[CallSite, ...]
    """The line of these calls, with those that led to it."""
    first: Parting
    """Where one of them calls the line first, and meets another line's call: that of the odd rank."""
    then: Parting
    """Where the other one does."""
    sure: bool
    """The line meets calls of several others. Where both ranks' calls of it meet one other line alone, the two lines
    may be the branches of one call, which the ranks take in turn."""


def crossings(world: World) -> list[Crossing]:
    """One for each stretch of calls that has any, the sure ones first."""
    ranks = {rank.rank: rank for rank in world}
    found = []
    for group, calls in sequences(world).items():
        present = {r: calls[r] for r in members(group, world.world_size) if r in calls}
        for stretch in _stretches(ranks, present) if len(present) > 1 else ():
            met = sorted(_met(stretch, list(present)), key=lambda one: not one[0])
            for sure, way, *numbers in met[:1]:
                (first, caller), (then, other) = sorted(numbers)
                partings = [
                    Parting(kind="line", group=group, number=number, odd=(odd,),
                            calls={r: calls[r][number] for r in sorted((caller, other))})
                    for number, odd in ((first, other), (then, caller))
                ]  # fmt: skip
                found.append(Crossing(way=way[0], first=partings[0], then=partings[1], sure=sure))
    return sorted(found, key=lambda one: not one.sure)


def _stretches(ranks: Mapping[int, Rank], calls: Mapping[int, Calls]) -> Iterator[Stretch]:
    """The calls of each moment, as far as they match, where any of them come from different lines."""
    moments = {r: sorted(record.n for kind in _MOMENTS for record in ranks[r].of(kind)) for r in calls}
    found: dict[tuple[int, ...], Stretch] = defaultdict(dict)
    for number in sorted(set.intersection(*(set(own) for own in calls.values()))):
        here = {r: own[number] for r, own in calls.items()}
        known = keys(here)
        if len(set(known.values())) > 1:
            break  # from here on, other calls meet
        if all(map(_counts, here.values())):
            moment = tuple(bisect_left(moments[r], call.n) for r, call in here.items())
            found[moment][number] = {r: (_lines(ranks[r], call), known[r]) for r, call in here.items()}
    for stretch in found.values():
        if any(len(set(ways.values())) > 1 for ways in stretch.values()):
            yield stretch


def _counts(call: ev.Call) -> bool:
    return call.op not in WITHOUT_DATA and not call.op.startswith("ddp-") and not call.thread


def _lines(rank: Rank, call: ev.Call) -> tuple[CallSite, ...]:
    where = rank.where(call.site)
    return where.chain if where is not None else ()


Met = tuple[bool, Way, tuple[int, int], tuple[int, int]]
"""Whether it is sure, the way, and for both ranks the number of its first call and the rank."""


def _met(stretch: Stretch, present: list[int]) -> Iterator[Met]:
    """Ranks that call one line as often as each other, and never together."""
    at: dict[int, dict[Way, set[int]]] = {r: defaultdict(set) for r in present}
    for number, ways in stretch.items():
        for r, way in ways.items():
            at[r][way].add(number)
    for a, b in combinations(present, 2):
        for way, own in at[a].items():
            its = at[b].get(way, set())
            if way[0] and len(own) == len(its) and not own & its:
                met = {stretch[number][b] for number in own} | {stretch[number][a] for number in its}
                yield len(met) > 1, way, (min(own), a), (min(its), b)
