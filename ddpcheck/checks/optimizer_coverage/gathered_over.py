"""The end of a flat buffer of parameters that no owner has: the gather that brings their new values ends before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing

ENOUGH = 3
"""Calls at which what lies behind was the same."""


def findings(world: World) -> Iterator[Finding]:
    """Say it once for each line that gathers."""
    each: dict[CallSite | None, list[tuple[Rank, list[ev.GatheredOver]]]] = defaultdict(list)
    for rank in world:
        by_line: dict[int, list[ev.GatheredOver]] = defaultdict(list)
        for one in rank.of(ev.GatheredOver):
            by_line[one.site].append(one)
        for site, its in by_line.items():
            same = {(tuple(one.names), tuple(one.elements), one.tails) for one in its}
            if len(its) >= ENOUGH and len(same) == 1:
                each[rank.where(site)].append((rank, its))
    for where, found in each.items():
        first = found[0][1][0]
        yield Finding(
            rule="incomplete-parameter-gather",
            severity="warning",
            ranks=tuple(sorted({rank.rank for rank, _ in found})),
            subject=first.names[0],
            expected="every element of parameters that lie in one flat buffer to be updated by a rank",
            found=f"the gather into that buffer to end before its last {count(sum(first.elements), 'element')} that "
            f"{'are' if sum(first.elements) > 1 else 'is'} trained, of {listing(first.names)}: with gradients, and the "
            f"same at each of {count(len(found[0][1]), 'call')} that were looked at",
            cause="the buffer is cut into one part for each rank by a division that leaves a rest",
            advice="Make the buffer longer, up to a multiple of the ranks, or give the rest to one of them.",
            where=where,
            count=len(found[0][1]),
        )
