"""The paths that several ranks write, and not in turns: what the judges of checkpoints ask first."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from ddpcheck.judging.file_history import CLAIMS, Files, Touch, files_of, is_lock
from ddpcheck.judging.happens_before import Order
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import World


@once_per_world
def shared_paths(world: World) -> set[str]:
    """The paths that several ranks of a script write at any time."""
    return set(written_by_several(files_of(world)))


def writes(files: Files, path: str) -> list[Touch]:
    """What puts content there for others: no claims, nothing under a lock."""
    return [
        t
        for t in files.writes.get(path, ())
        if t.record.how not in CLAIMS and not t.record.locked and not is_lock(path)
    ]


def written_by_several(files: Files, saves: bool = False) -> dict[str, list[Touch]]:
    """By path, the writes of several ranks; ``saves`` where all files are a checkpoint's.

    A script may have its ranks write in turn; of a save that is to have one writer they are several all the same.
    """
    order = Order(files.world)
    each = {path: writes(files, path) for path in files.writes}
    return {
        path: touches
        for path, touches in each.items()
        if len({t.number for t in touches}) > 1 and (saves or not _take_turns(order, touches))
    }


def _take_turns(order: Order, writes: Sequence[Touch]) -> bool:
    """Whether the program keeps all writes of different ranks apart: one rank writes at any time."""
    each = {mine[0].number: mine for mine in by_rank(writes)}
    for write in sorted(writes, key=lambda t: t.start):
        for rank, theirs in each.items():
            if rank == write.number:
                continue
            before = bisect_left(theirs, True, key=lambda t: not order.known(rank, t.end, write.number, write.start))
            if before < len(theirs) and not order.known(write.number, write.end, rank, theirs[before].start):
                return False
    return True


def by_rank(touches: Sequence[Touch]) -> list[list[Touch]]:
    by_rank: dict[int, list[Touch]] = defaultdict(list)
    for t in sorted(touches, key=lambda t: t.start):
        by_rank[t.number].append(t)
    return list(by_rank.values())
