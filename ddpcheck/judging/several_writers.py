"""The paths that several ranks write, and not in turns: what the judges of checkpoints ask first."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from ddpcheck.judging.file_history import CLAIMS, Files, Touch, files_of, is_lock
from ddpcheck.judging.happens_before import Order
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import CallSite


@once_per_world
def shared_paths(world: World) -> set[str]:
    """The paths that several ranks of a script write at any time."""
    return set(written_by_several(files_of(world)))


def writes(files: Files, path: str) -> list[Touch]:
    """What puts content there for others: no claims and no locks."""
    return [t for t in files.writes.get(path, ()) if t.record.how not in CLAIMS and not is_lock(path)]


def written_by_several(files: Files, saves: bool = False) -> dict[str, list[Touch]]:
    """By path, the writes that another rank may make at the same time; ``saves`` where all files are a checkpoint's.

    A script may have its ranks write in turn; of a save that is to have one writer they are several all the same.
    """
    order = Order(files.world)
    found = {}
    for path in files.writes:
        touches = writes(files, path)
        if len({t.number for t in touches}) > 1:
            found[path] = touches if saves else _unordered(order, touches)
    return {path: touches for path, touches in found.items() if touches}


def _unordered(order: Order, writes: Sequence[Touch]) -> list[Touch]:
    """The writes that the program keeps apart from one of another rank by no collective and no lock."""
    each = {mine[0].number: mine for mine in by_rank(writes)}

    def clashes(write: Touch, rank: int, theirs: list[Touch]) -> bool:
        theirs = [t for t in theirs if not t.excludes(write)] if write.record.locks else theirs
        before = bisect_left(theirs, True, key=lambda t: not order.known(rank, t.end, write.number, write.start))
        return before < len(theirs) and not order.known(write.number, write.end, rank, theirs[before].start)

    return [w for w in writes if any(clashes(w, rank, theirs) for rank, theirs in each.items() if rank != w.number)]


def by_rank(touches: Sequence[Touch]) -> list[list[Touch]]:
    by_rank = by_key((t.number, t) for t in sorted(touches, key=lambda t: t.start))
    return list(by_rank.values())


def on_shared_lines(writes: Sequence[Touch]) -> list[Touch]:
    """The writes at lines that several ranks came to, in one way if there is any; all writes where there is none."""
    for way in (_way, _line):
        ranks: dict[object, set[int]] = defaultdict(set)
        for t in writes:
            ranks[way(t)].add(t.number)
        shared = [t for t in writes if len(ranks[way(t)]) > 1]
        if shared:
            return shared
    return list(writes)


def _way(write: Touch) -> tuple[CallSite, ...]:
    return write.where.chain if write.where is not None else ()


def _line(write: Touch) -> CallSite | None:
    return write.where
