"""The evidence of all ranks of one process group, side by side: what the judges of a script's run look at."""

from __future__ import annotations

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.vocabulary.bounded_numbers import Seconds
from ddpcheck.vocabulary.model import CallSite, Finding, Struct

R = TypeVar("R", bound=ev.Record)


class Judged(Struct, frozen=True, kw_only=True):
    """What one check has to say of a run."""

    checked: int
    """Of the check's units, such as windows or saves: how many were compared."""
    of: int = 0
    """How many of them the run had; a judge may leave it out where it compared all of them."""
    findings: tuple[Finding, ...] = ()
    advisories: tuple[Finding, ...] = ()
    """Findings of severity advisory: no status and no verdict depends on them."""
    skipped_because: str = ""
    """Why it was not checked."""
    check: str = ""
    """Its id; a judge may leave it out."""

    def named(self, check: str) -> Judged:
        """The same, under the id of the check and with findings that have one."""
        return replace(self, check=check, findings=tuple(f.named(check) for f in self.findings))


class Process:
    """Everything that one process has written down, in its order."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.records: list[Any] = []
        self.gap = ""
        """Why it was written down no further, as a clause; empty where it was."""
        self.damaged = 0
        """Bytes of its file that were no record."""
        self.whole_to = math.inf
        """The ``n`` of the last record before the first of these."""
        self.torn = False
        """Its file ends in the middle of a record."""
        self.sign_at = 0.0
        """When its last sign of life was seen, on the monotonic clock of this host."""
        self.taken = 0
        """Records that it was given, with those that are held no longer."""
        self.let_go_from, self.let_go_to = math.inf, -math.inf
        """The ``n`` of the first and the last of these."""
        self.compared_before = (0, 0)
        """Steps among these that were looked at in full, and in full or in part."""
        self._by_kind: dict[type, list[Any]] = defaultdict(list)
        self._sites: dict[int, ev.Site] = {}
        self._places: dict[int, CallSite] = {}
        self._bodies: dict[tuple[str, int], str] = {}

    def add(self, records: Iterable[Any]) -> None:
        """Take further records."""
        for record in records:
            self.taken += 1
            self.records.append(record)
            self._by_kind[type(record)].append(record)
            if isinstance(record, ev.Site):
                self._sites[record.id] = record
                if record.body:
                    self._bodies[record.file, record.first] = record.body

    def since(self, taken: int) -> list[Any]:
        """The records after the first so many that it was given."""
        new = self.taken - taken
        return self.records[-new:] if new else []

    def snapshot(self) -> Process:
        """The process as it is now: it may be judged in another thread while this one goes on."""
        kept = copy.copy(self)
        kept.records = list(self.records)
        kept._by_kind = defaultdict(list, {kind: list(records) for kind, records in self._by_kind.items()})
        kept._sites, kept._bodies, kept._places = dict(self._sites), dict(self._bodies), {}
        return kept

    def let_go(self, before: float, taken: int, first: int) -> list[Any]:
        """Hold no longer what is passing, up to a record's ``n``; the records that are meant.

        Only those count that were among the first ``taken``; and of each kind the ``first`` so many stay.
        """
        judged = len(self.records) - (self.taken - taken)
        met: Counter[type] = Counter()
        gone: list[Any] = []
        kept: list[Any] = []
        for place, record in enumerate(self.records):
            passes = record.passing and record.n < before and place < judged
            met[type(record)] += passes
            (gone if passes and met[type(record)] > first else kept).append(record)
        if gone:
            self.records = kept
            self._by_kind = defaultdict(list)
            for record in kept:
                self._by_kind[type(record)].append(record)
            numbers = [record.n for record in gone]
            self.let_go_from = min(self.let_go_from, min(numbers))
            self.let_go_to = max(self.let_go_to, max(numbers))
        return gone

    def lacks(self, start: float, end: float) -> bool:
        """Whether some of what was recorded between two ``n`` is held no longer."""
        return start < self.let_go_to and end > self.let_go_from

    def until(self, at: float) -> Process:
        """The process as far as it had come by a moment; it has all of its lines."""
        cut = copy.copy(self)
        cut.records, cut._by_kind, cut._sites, cut.taken = [], defaultdict(list), {}, 0
        cut._places, cut._bodies = {}, {}
        cut.add(record for record in self.records if record.at < at or isinstance(record, (ev.Began, ev.Site)))
        return cut

    def of(self, kind: type[R]) -> list[R]:
        """The records of one kind, in order."""
        return self._by_kind.get(kind, [])

    def last(self, kind: type[R]) -> R | None:
        """The last record of one kind."""
        found = self._by_kind.get(kind)
        return found[-1] if found else None

    def where(self, site: int) -> CallSite | None:
        """The line of a site's number, with those that have led to it; None for that of no line."""
        known = self._places.get(site)
        found = self._sites.get(site)
        if known is not None or found is None:
            return known
        caller = self.where(found.caller) if found.caller < site else None
        place = CallSite(
            file=found.file, line=found.line, function=found.function, caller=caller, through=found.through
        )
        self._places[site] = place
        return place

    def line(self, site: int) -> str:
        """The text of a site's line."""
        found = self._sites.get(site)
        return found.text if found else ""

    def calls_to(self, site: int) -> tuple[ev.Site, ...]:
        """The sites that have led to one, the outermost first, and itself."""
        found = self._sites.get(site)
        if found is None:
            return ()
        return (*(self.calls_to(found.caller) if found.caller < site else ()), found)

    def body(self, site: ev.Site) -> str:
        """The text of the function that a site's line is in; empty where it is not on record."""
        return self._bodies.get((site.file, site.first), "")

    def texts(self) -> list[tuple[str, int, str, str]]:
        """The functions whose text is on record: file, first line, name, text."""
        return [(s.file, s.first, s.function, s.body) for s in self._sites.values() if s.body]

    def text_at(self, file: str, line: int) -> str:
        """The text of any line of the functions whose text is on record; empty where it is not."""
        for (name, first), body in self._bodies.items():
            lines = body.split("\n") if name == file else []
            if 0 <= line - first < len(lines):
                return lines[line - first].strip()
        return ""

    @property
    def began(self) -> ev.Began | None:
        return self.last(ev.Began)

    @property
    def incomplete(self) -> bool:
        """It may have done what is not on record."""
        return bool(self.gap or self.damaged or self.torn)

    @property
    def pid(self) -> int:
        return self.began.pid if self.began else 0


class Stretch(msgspec.Struct, frozen=True):
    """One membership of a process: its rank, and the part of its records that belong to it."""

    process: Process
    joined: ev.Joined
    start: int
    """The ``n`` of the first record that counts: what came before the group is built into it (a model, a dataset)."""
    end: float
    """The ``n`` of the first one that does not; infinite for the last membership."""


class Rank:
    """One rank of a world: its part of a process's evidence."""

    def __init__(
        self,
        stretch: Stretch,
        exit_code: int | None = None,
        signal: int | None = None,
        alone: bool = False,
        silent: float = 0.0,
    ) -> None:
        self.process = stretch.process
        self.joined = stretch.joined
        self.rank = stretch.joined.rank
        self.start, self.end = stretch.start, stretch.end
        self.exit_code, self.signal = self.exit = exit_code, signal
        """How the process ended, where that is known; ``exit`` has both also where they were changed after a hang."""
        self.alone = alone
        """It ended before anybody had asked the ranks to."""
        self.silent = silent
        """Seconds for which no Python code had run in it when the ranks were ended; 0 where that is not known."""
        self.memory_kills: int | None = None
        """How many processes its host has ended for want of memory during the run; None where that is not known."""
        self.workers: list[Process] = []
        """The processes that load samples for it."""

    def of(self, kind: type[R]) -> list[R]:
        """The records of one kind that belong to this membership."""
        return [r for r in self.process.of(kind) if self.start <= r.n < self.end]

    def last(self, kind: type[R]) -> R | None:
        found = self.of(kind)
        return found[-1] if found else None

    def where(self, site: int) -> CallSite | None:
        return self.process.where(site)

    def line(self, site: int) -> str:
        return self.process.line(site)

    def proof(self, *sites: int, but: CallSite | None = None) -> tuple[tuple[int, CallSite], ...]:
        """The lines of these sites as a finding has them for its proof, without those that are not known."""
        lines = dict.fromkeys(map(self.where, sites))
        return tuple((self.rank, line) for line in lines if line is not None and line != but)

    @property
    def gone(self) -> bool:
        """It takes part in nothing any more: the process has ended, or has left the group."""
        return self.exit_code is not None or self.signal is not None or bool(self.of(ev.Ended) or self.of(ev.Left))


class Moment(Struct, frozen=True, kw_only=True):
    """A moment of a run, on the clock of whichever process."""

    at: Seconds
    """On the monotonic clock of its host."""
    host: str = ""
    wall: Seconds = 0.0
    """Seconds since the epoch."""

    def on(self, process: Process) -> float:
        """The moment on the monotonic clock of a process; two hosts are compared by the time of day."""
        began = process.began
        if began is None or began.host == self.host:
            return self.at
        return began.at + self.wall - began.wall


class World:
    """The ranks of one default process group, by rank; one that never came is missing."""

    def __init__(
        self, ranks: Sequence[Rank], world_size: int, now: Moment | None = None, stopped: Moment | None = None
    ) -> None:
        self.ranks = tuple(sorted(ranks, key=lambda r: r.rank))
        self.world_size = world_size
        self.now = now
        """When it is looked at, before it has ended; None for one that has: what is missing then will not come."""
        self.stopped = stopped
        """When ddpcheck began to end its ranks, which were stuck."""
        self.worked_out: dict[Any, Any] = {}
        """What several judges ask of it: see :mod:`ddpcheck.judging.once_per_world`."""

    def __getstate__(self) -> dict[str, Any]:
        """What was worked out stays where it was."""
        return {**vars(self), "worked_out": {}}

    def __iter__(self) -> Iterator[Rank]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def of(self, kind: type[R]) -> Iterator[tuple[Rank, R]]:
        """The records of one kind, each with its rank, rank by rank."""
        return ((rank, record) for rank in self.ranks for record in rank.of(kind))

    @property
    def token(self) -> str:
        """The same for one group, whenever it is looked at, and for no other."""
        return self.ranks[0].joined.token

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """The ranks that have left no evidence."""
        return tuple(sorted(set(range(self.world_size)) - {rank.rank for rank in self.ranks}))

    @property
    def complete(self) -> bool:
        """Every rank has left evidence."""
        return not self.missing
