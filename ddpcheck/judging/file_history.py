"""Who has done what to each file, across the ranks: the ground that the judges of checkpoints stand on."""

from __future__ import annotations

import fnmatch
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite

SAVES = ("torch.save", "torch.jit.save")
LOADS = ("torch.load", "torch.jit.load")
CLAIMS = ("os.open", "open x")
"""A marker, a lock or a temporary file: made, or found to be there already."""
CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin", ".tar", ".safetensors", ".pkl")
ARRAYS = (".npy", ".npz")
"""Files of numpy's: a cache of data, or parameters as well."""
MOST_LISTINGS = 50
"""Questions after many files that are looked at."""
MOST_LOADS = 2_000
"""Loads that are looked at."""
NEVER = 1 << 62
"""The end of what is not known to end: it is enforced to be over before nothing."""

_LOCK = re.compile(r"(^|[._-])lo?ck(file)?$", re.IGNORECASE)
_LOCAL = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/", "/local/")
"""Folders that each host has for itself."""


class Touch(NamedTuple):
    """One rank has done something to one path."""

    rank: Rank
    record: ev.File
    path: str
    start: int
    end: int
    """When it is over for certain: of what a thread does beside the main one, when that has been waited for."""

    @property
    def where(self) -> CallSite | None:
        return self.rank.where(self.record.site)

    @property
    def number(self) -> int:
        return self.rank.rank

    def excludes(self, other: Touch) -> bool:
        """Whether both were made under a lock on one file, so that the one waits for the other."""
        return not set(self.record.locks).isdisjoint(other.record.locks)


class Files:
    """Everything that was done to files, by path."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts = {rank.process.began.host for rank in world if rank.process.began is not None}
        self.writes: dict[str, list[Touch]] = defaultdict(list)
        """What puts content there: a write, or a rename onto it."""
        self.reads: dict[str, list[Touch]] = defaultdict(list)
        self.queries: dict[str, list[Touch]] = defaultdict(list)
        self.listings: list[Touch] = []
        """Questions after many files at once; the path is a pattern."""
        self.contents: dict[str, list[Touch]] = defaultdict(list)
        """What small files were seen to hold by who had opened them."""
        self.appended: set[str] = set()
        """Paths that somebody adds to."""
        self.removals: dict[str, list[Touch]] = defaultdict(list)
        """What takes the content away: a removal, of a folder above it too, or a rename to elsewhere."""
        self.states: set[str] = set()
        """Files and folders that a call which saves or loads state has written or read."""
        for rank in world:
            paths = {*(one.path for one in rank.of(ev.StateSaved)), *(one.path for one in rank.of(ev.StateRead))}
            self.states |= {self._key(rank, path) for path in paths if path}
            records = rank.of(ev.File)
            joins = [r for r in records if r.op == "join"]
            for record in records:
                self._add(rank, record, _end(record, joins))

    def _add(self, rank: Rank, record: ev.File, end: int) -> None:
        touch = Touch(rank, record, self._key(rank, record.path), record.n, end)
        if record.how in LOADS or (record.how in SAVES and record.keys):
            self.states.add(touch.path)
        if record.op == "write":
            self.writes[touch.path].append(touch)
        elif record.op == "content":
            self.contents[touch.path].append(touch)
        elif record.op == "append":
            self.appended.add(touch.path)
        elif record.op == "read":
            self.reads[touch.path].append(touch)
        elif record.op == "query":
            if record.how in ("glob", "os.listdir"):
                if len(self.listings) < MOST_LISTINGS:
                    self.listings.append(touch)
            else:
                self.queries[touch.path].append(touch)
        elif record.op == "remove":
            self.removals[touch.path].append(touch)
        elif record.op == "rename":
            self.removals[touch.path].append(touch)
            onto = touch._replace(path=self._key(rank, record.target))
            self.writes[onto.path].append(onto)

    def _key(self, rank: Rank, path: str) -> str:
        """The path; with the host before it where other hosts have another file there."""
        if len(self.hosts) > 1 and path.startswith(_LOCAL) and rank.process.began is not None:
            return f"{rank.process.began.host}:{path}"
        return path

    # --- what belongs to a path

    def written_to(self, path: str) -> list[Touch]:
        """What put content at a path: onto it, or by way of a folder above it that was renamed as a whole."""
        found = list(self.writes.get(path, ()))
        for folder in _above(path):
            found += [t for t in self.writes.get(folder, ()) if t.record.op == "rename"]
        return found

    def removed_from(self, path: str) -> list[Touch]:
        """What took the content of a path away."""
        found = list(self.removals.get(path, ()))
        for folder in _above(path):
            found += self.removals.get(folder, ())
        return found

    def is_checkpoint(self, path: str) -> bool:
        """Whether a call that saves or loads state was seen to go to this path, or to a folder above it."""
        return path in self.states or not self.states.isdisjoint(_above(path))

    def asked_for(self, path: str) -> Iterator[Touch]:
        """Questions whether something is there; of lists of files, those of ranks that then load from among them."""
        yield from self.queries.get(path, ())
        for listing in self.listings:
            if fnmatch.fnmatchcase(path, listing.path) and self._loads_from(listing):
                yield listing

    def _loads_from(self, listing: Touch) -> bool:
        """Whether its rank then reads one of them: before its next step, and not to take some of them away."""
        rank = listing.rank
        steps = [s.n for s in rank.of(ev.Step) if s.n > listing.start]
        gone = [
            t.start
            for path, removals in self.removals.items()
            if fnmatch.fnmatchcase(path, listing.path)
            for t in removals
            if t.rank is rank and t.start > listing.start
        ]
        until = min([*steps[:1], *gone], default=NEVER)
        return any(
            t.rank is rank and listing.start < t.start < until
            for path, reads in self.reads.items()
            if fnmatch.fnmatchcase(path, listing.path)
            for t in reads
        )

    @property
    def everything(self) -> set[str]:
        """Every path that was written, read or asked for."""
        listed = {p for p in self.writes for listing in self.listings if fnmatch.fnmatchcase(p, listing.path)}
        return {*self.writes, *self.reads, *self.queries, *listed}


@once_per_world
def files_of(world: World) -> Files:
    """Everything that was done to files in a world."""
    return Files(world)


def stopped_by(touches: Sequence[Touch]) -> tuple[str, ...]:
    """The link to what has ended the program, where that was one of these, or speaks of their files."""
    for touch in touches:
        for raised in touch.rank.of(ev.Raised):
            if touch.rank.where(raised.site) == touch.where or touch.record.path in raised.message:
                return ("stop",)
    return ()


def next_load(load: Touch) -> float:
    """The ``n`` of the next load on the same rank; infinite where there is none."""
    return min((r.n for r in load.rank.of(ev.File) if r.how in LOADS and r.n > load.start), default=float("inf"))


def is_lock(path: str) -> bool:
    """Whether a file is a lock by its name: ranks are meant to share it."""
    return bool(_LOCK.search(os.path.basename(path)))


def is_state(touch: Touch) -> bool:
    """Whether it is, or may be, the state of a model: by who writes or reads it, or by its name."""
    record = touch.record
    return record.how in (*SAVES, *LOADS) or (record.target or record.path).endswith((*CHECKPOINTS, *ARRAYS))


def shown(touch: Touch, path: str = "") -> str:
    """The path as a user would name it: relative to the working directory where it lies below."""
    began = touch.rank.process.began
    path = path or touch.path
    if began is not None and began.folder and path.startswith(began.folder.rstrip("/") + "/"):
        return path[len(began.folder.rstrip("/")) + 1 :]
    return path


def done(touch: Touch) -> str:
    """What was done, in words: ``torch.save``, ``the rename``."""
    record = touch.record
    if record.op == "rename":
        return "the rename"
    if record.op == "remove":
        return "the removal"
    if record.op == "write" and record.how not in SAVES:
        return "the write"
    if record.op == "read" and record.how not in LOADS:
        return "the read"
    return record.how


def _end(record: ev.File, joins: list[ev.File]) -> int:
    if not record.thread or record.thread.startswith("asyncio_"):
        return record.ended
    return min((j.n for j in joins if j.thread in (record.thread, "*") and j.n >= record.ended), default=NEVER)


def _above(path: str) -> Iterator[str]:
    while True:
        folder = os.path.dirname(path)
        if not folder or folder == path:
            return
        yield folder
        path = folder
