"""Buffers that a forward changes, and changes once more when it runs again for backward()."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> list[Finding]:
    """A finding for each line that has such a part of the forward checkpointed."""
    found = by_key((str(rank.where(one.site)), (rank, one)) for rank, one in world.of(ev.Recomputed) if one.buffers)
    return [_finding(there) for there in found.values()]


def _finding(there: list[tuple[Rank, ev.Recomputed]]) -> Finding:
    rank, first = there[0]
    names = list(dict.fromkeys(name for _, one in there for name in one.buffers))
    return Finding(
        rule="buffers-updated-twice",
        severity="warning",
        ranks=tuple(sorted({one.rank for one, _ in there})),
        subject=names[0],
        expected="each batch to change a buffer once",
        found=f"{count(len(names), 'buffer')} to be changed by the forward and once more when it ran again for "
        f"backward(): {listing(names)}",
        cause="the function that is checkpointed writes the buffer, so what it counts or averages is taken in twice",
        advice="Return what is to be counted from the checkpointed function, and change the buffer outside of it.",
        where=rank.where(first.site),
        count=len(there),
        links=("buffers",),
    )
