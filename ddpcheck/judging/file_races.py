"""Reads that nothing keeps apart from a write, or a removal, on another rank.

What counts is the order that the program enforces by its collectives, not how
it happened to go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddpcheck.judging.existence_queries import Asked
from ddpcheck.judging.file_history import LOADS, SAVES, Files, Touch, files_of, is_lock, is_state
from ddpcheck.judging.happens_before import Order
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.several_writers import shared_paths
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import World

MOST = 5_000
"""Paths that are looked at."""


class Race(NamedTuple):
    """What one rank puts or takes away, and a read on another rank that nothing keeps apart from it."""

    change: Touch
    read: Touch
    again: bool
    """An earlier write of the same rank does come before the read: it is a later one that comes too soon."""
    sure: bool = True
    """Something comes of it that is not the same on all ranks, or may not be."""


class Races(NamedTuple):
    """All of them."""

    written: list[Race]
    taken: list[Race]
    """Of what is taken away."""
    checked: int
    """The reads and questions that were looked at, but for waits, of which no single answer decides anything."""
    unordered: bool
    """Some paths were left out, since several ranks write them."""


@once_per_world
def races_of(world: World) -> Races:
    """The races of a script's run."""
    return races(files_of(world), shared_paths(world))


def races(files: Files, several: set[str]) -> Races:
    """The races of these files, without the paths that several ranks write: those are a mistake of their own."""
    order, asked_for = Order(files.world), Asked(files)
    written: list[Race] = []
    taken: list[Race] = []
    paths = checked = 0
    unordered = False
    for path in sorted(files.everything):
        if is_lock(path):
            continue
        writes = files.written_to(path)
        reads = [t for t in files.reads.get(path, ()) if t.record.existed or t.record.how in LOADS]
        asked = [t for t in files.asked_for(path) if _matters(files, path) and not asked_for.is_wait(t)]
        removals = files.removed_from(path)
        if not _between_ranks(writes + removals, reads + asked):
            continue
        if path in several:
            unordered = True
            continue
        if paths == MOST:
            break
        paths += 1
        checked += len(_between_ranks(writes + removals, reads + asked))
        found = _races(order, asked_for, writes, [*reads, *asked])
        found = [weighed for race in found if (weighed := _weighed(files, asked_for, race)) is not None]
        written += found
        if not found:
            taken += _races(order, asked_for, removals, reads)
    return Races(written, taken, checked, unordered)


def _matters(files: Files, path: str) -> bool:
    """Whether it is a file to load from, so that to ask for it decides something."""
    writes = files.writes.get(path, ())  # what was only removed has none, and gets none by the question
    return path in files.reads or any(t.record.how in SAVES or t.record.op == "rename" for t in writes)


def _between_ranks(changes: Sequence[Touch], reads: Sequence[Touch]) -> list[Touch]:
    """The reads of what another rank has changed."""
    ranks = {change.number for change in changes}
    return [read for read in reads if ranks - {read.number}]


def _races(order: Order, asked: Asked, changes: Sequence[Touch], reads: Sequence[Touch]) -> list[Race]:
    """For each read, the first change on another rank that it is not kept apart from."""
    by_rank = by_key((change.number, change) for change in sorted(changes, key=lambda t: t.end))
    found = []
    for read in reads:
        for rank, theirs in by_rank.items():
            if rank != read.number:
                race = _race(order, asked, theirs, read)
                if race is not None:
                    found.append(race)
    return found


def _race(order: Order, asked: Asked, changes: list[Touch], read: Touch) -> Race | None:
    """Of one rank's changes, in their order, those up to some one are over before the read: what of the next?"""

    def is_before(change: Touch) -> bool:
        if change.excludes(read):
            return True
        if order.enforced(change.number, change.end, read.number, read.start):
            return True
        return asked.has_waited_for(change, read)

    low, high = 0, len(changes)
    while low < high:
        middle = (low + high) // 2
        if is_before(changes[middle]):
            low = middle + 1
        else:
            high = middle
    if low == len(changes):
        return None
    change = changes[low]
    if order.enforced(read.number, read.end, change.number, change.start):
        return None
    return Race(change, read, low > 0 and read.record.existed)


def _weighed(files: Files, asked: Asked, race: Race) -> Race | None:
    """The race, and whether it is sure that it matters; nothing where it is sure that it does not."""
    read = race.read
    if _is_any_version_right(files, read.path) and not asked.leads_to_load(read):
        # Whoever reads it gets the whole of some version; there may be none yet.
        looked = any(q.rank is read.rank and q.start < read.start for q in files.queries.get(read.path, ()))
        if race.again or (read.record.op == "read" and looked):
            return None
        return race._replace(sure=False)
    if read.record.op == "query":
        settled = asked.is_settled(read)
        return None if settled == "yes" else race._replace(sure=settled == "no")
    return race


def _is_any_version_right(files: Files, path: str) -> bool:
    """Whether a file is whole whenever it is there, is read, and by none of its names and readers the state of a model.

    Such are the heartbeats that each rank leaves for the others.
    """
    writes = files.written_to(path)
    reads = files.reads.get(path, ())
    return (
        bool(writes)
        and bool(reads)
        and not any(map(is_state, reads))
        and all(t.record.op == "rename" and t.path == path for t in writes)
        and not any(map(is_state, writes))
        and not any(is_state(before) for t in writes for before in files.writes.get(t.record.path, ()))
    )
