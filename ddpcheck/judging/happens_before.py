"""What the program enforces to happen first: the order between ranks that its collectives make, however it went."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ddpcheck import evidence as ev
from ddpcheck.evidence import PAIRWISE, RECEIVES
from ddpcheck.judging.world import Rank, World

FROM_ONE = frozenset({"broadcast", "scatter", "ddp-buffers", "ddp-buckets"})
"""The past of the source comes before the future of the others."""
TO_ONE = frozenset({"reduce", "gather"})
"""The past of all comes before the future of the destination."""
WAIT = "wait"
"""``Work.wait()`` of an asynchronous call."""
NEW_GROUP = "new_group"
"""All ranks make a group alike, and need not wait for each other."""
UNFINISHED = "ddp-unfinished"
"""A backward is over, and DDP has not reduced everything: other ranks' reduction of this number still lacks one."""


@lru_cache
def members(group: str, world_size: int) -> tuple[int, ...]:
    """The ranks of a group, from its name; none for a group that nobody saw being made."""
    if group == "world":
        return tuple(range(world_size))
    names = group.partition("#")[0].split(",")
    return tuple(int(name) for name in names) if all(re.fullmatch("[0-9]{1,6}", name) for name in names) else ()


def source(call: ev.Call, ranks: Sequence[int]) -> int | None:
    """The one that a call is from, or to."""
    return call.peer if call.peer is not None else min(ranks, default=None)


class _Places:
    """One rank's calls on one group by their number: where each began, and where the rank was past it."""

    def __init__(self) -> None:
        self.calls: dict[int, ev.Call] = {}
        self.past: dict[int, float] = {}


class Order:
    """Asks whether an event on one rank is enforced to come before another one on another rank."""

    def __init__(self, world: World) -> None:
        self._ranks = {rank.rank: rank for rank in world}
        self._size = world.world_size
        self._meetings: list[dict[int, list[float]]] = []
        """Where all of a group meet: by rank, the ``n`` of one meeting after the other."""
        self._edges: dict[int, dict[int, list[tuple[float, float]]]] = defaultdict(dict)
        """From rank to rank: before which ``n`` here is before which ``n`` there."""
        self._gaps: dict[str, dict[int, list[tuple[int, int, float, float]]]] = defaultdict(dict)
        """By group and rank, calls that were made and are not on record: numbers, and between which ``n``."""
        self._built = False

    def enforced(self, rank_a: int, end_n: int, rank_b: int, start_n: int) -> bool:
        """Whether what ended at ``end_n`` on one rank is always over when what starts at ``start_n`` on another does.

        Numbers are those of records. Where calls that might have made the
        order are missing from the record, the answer is yes.
        """
        if rank_a == rank_b:
            return end_n <= start_n
        if any(r not in self._ranks or self._ranks[r].process.incomplete for r in (rank_a, rank_b)):
            return True
        return self.known(rank_a, end_n, rank_b, start_n) or self._may_be_missing(rank_a, end_n, rank_b, start_n)

    def known(self, rank_a: int, end_n: int, rank_b: int, start_n: int) -> bool:
        """The same of two different ranks, by what is on record alone."""
        if not self._built:
            self._build()
        reached: dict[int, float] = {rank_a: end_n}
        open_ranks = [rank_a]
        while open_ranks:
            here = open_ranks.pop()
            for there, after in self._next(here, reached[here]):
                if after < reached.get(there, math.inf):
                    reached[there] = after
                    if there == rank_b and after < start_n:
                        return True
                    open_ranks.append(there)
        return False

    def _next(self, here: int, before: float) -> Iterator[tuple[int, float]]:
        """What comes after all that is before ``before`` on this rank: rank, and after which ``n``."""
        for meeting in self._meetings:
            mine = meeting.get(here)
            if mine is None:
                continue
            place = bisect_left(mine, before)
            if place < len(mine):
                for there, theirs in meeting.items():
                    if there != here:
                        yield there, theirs[place]
        for there, edges in self._edges.get(here, {}).items():
            place = bisect_left(edges, (before, -math.inf))
            if place < len(edges):
                yield there, edges[place][1]

    # --- the index

    def _build(self) -> None:
        self._built = True
        self._meetings.append({r: [float(rank.joined.n)] for r, rank in self._ranks.items()})
        edges: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        groups: dict[str, dict[int, _Places]] = defaultdict(dict)
        pairs: dict[tuple[str, int, int, str, int], list[tuple[float, float] | None]] = {}
        for r, rank in self._ranks.items():
            self._sort_out(r, rank, groups, pairs)
        for group, ranks in groups.items():
            self._match(group, ranks, edges)
        for (_, sender, receiver, _, _), ends in pairs.items():
            if ends[0] is not None and ends[1] is not None:
                edges[sender, receiver].append((ends[0][0], ends[1][1]))
        self._by_store(edges)
        for (here, there), found in edges.items():
            found.sort()
            for place in range(len(found) - 2, -1, -1):  # the earliest of all that come later here
                found[place] = (found[place][0], min(found[place][1], found[place + 1][1]))
            self._edges[here][there] = found

    def _by_store(self, edges: dict[tuple[int, int], list[tuple[float, float]]]) -> None:
        """Who waits for a key comes after the rank that sets it, if one rank alone does: after its first time."""
        sets: dict[str, dict[int, int]] = defaultdict(dict)
        for r, rank in self._ranks.items():
            for stored in rank.of(ev.Stored):
                if stored.sets:
                    sets[stored.key].setdefault(r, stored.n)
        for r, rank in self._ranks.items():
            for stored in rank.of(ev.Stored):
                by = sets.get(stored.key, {})
                if not stored.sets and len(by) == 1 and r not in by:
                    ((one, n),) = by.items()
                    edges[one, r].append((float(n), float(stored.n)))

    def _sort_out(
        self,
        r: int,
        rank: Rank,
        groups: dict[str, dict[int, _Places]],
        pairs: dict[tuple[str, int, int, str, int], list[tuple[float, float] | None]],
    ) -> None:
        calls = rank.of(ev.Call)
        waits = {call.of: float(call.n) for call in reversed(calls) if call.op == WAIT}
        ahead = {n: float(seen.n) for seen in rank.of(ev.HostAhead) for n in seen.calls}
        for call in calls:
            if call.op in (WAIT, UNFINISHED) or call.joined or call.group == "?":
                continue
            past = float(call.n) if call.waits else waits.get(call.n, math.inf)
            # Where the host was seen to be further than its device, the call has held it up only after that.
            past = max(past, ahead.get(call.n, past))
            if call.op not in PAIRWISE:
                places = groups[call.group].setdefault(r, _Places())
                places.calls[call.number] = call
                places.past[call.number] = past
            elif call.peer is not None:
                end = call.op in RECEIVES
                way = (call.peer, r) if end else (r, call.peer)
                ends = pairs.setdefault((call.group, *way, call.detail, call.number), [None, None])
                ends[end] = (float(call.n), past)

    def _match(
        self, group: str, ranks: dict[int, _Places], edges: dict[tuple[int, int], list[tuple[float, float]]]
    ) -> None:
        present = [r for r in members(group, self._size) if r in ranks]
        if not present:
            return
        meeting: dict[int, list[float]] = {r: [] for r in present}
        whole = present == list(members(group, self._size))
        for number in sorted(set().union(*(ranks[r].calls for r in present))):
            here = [r for r in present if number in ranks[r].calls]
            calls = {r: ranks[r].calls[number] for r in here}
            if any(call.op == NEW_GROUP for call in calls.values()):
                continue
            past = {r: ranks[r].past[number] for r in here}
            first = calls[here[0]]
            if first.operation in FROM_ONE or first.operation in TO_ONE:
                one = source(first, members(group, self._size))
                if one in calls:
                    for r in here:
                        a, b = (one, r) if first.operation in FROM_ONE else (r, one)
                        if r != one and past[b] != math.inf:
                            edges[a, b].append((float(calls[a].n), past[b]))
            elif whole and len(here) == len(present) and all(past[r] == calls[r].n for r in here):
                for r in here:
                    meeting[r].append(past[r])
            else:
                for a in here:
                    for b in here:
                        if a != b and past[b] != math.inf:
                            edges[a, b].append((float(calls[a].n), past[b]))
        self._meetings.append(meeting)
        for r in present:
            self._gaps[group][r] = list(_gaps(ranks[r].calls))

    def _may_be_missing(self, rank_a: int, end_n: int, rank_b: int, start_n: int) -> bool:
        for ranks in self._gaps.values():
            for first_a, last_a, _, until_a in ranks.get(rank_a, ()):
                if until_a < end_n:
                    continue
                for first_b, last_b, from_b, _ in ranks.get(rank_b, ()):
                    if from_b < start_n and first_a <= last_b and first_b <= last_a:
                        return True
        return False


def _gaps(calls: dict[int, ev.Call]) -> Iterator[tuple[int, int, float, float]]:
    """Numbers that are missing between those on record, and the ``n`` on both sides."""
    number, n = 0, 0.0
    for following in sorted(calls):
        if following > number + 1 and number:
            yield number + 1, following - 1, n, float(calls[following].n)
        number, n = following, float(calls[following].n)
