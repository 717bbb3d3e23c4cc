"""Questions whether a file is there: which of them wait for it, and which are settled between the ranks at once."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

from ddpcheck import evidence as ev
from ddpcheck.judging.file_history import CLAIMS, LOADS, Files, Touch
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Rank

FEW = 16
"""Elements of a tensor that carries a decision, and is no part of a model."""
SETTLED_BY = ("all_reduce", "all_gather", "broadcast", "gather", "reduce", "scatter")
_ELEMENTS = re.compile(r" x (\d+)")

Settled = Literal["yes", "maybe", "no"]


class Asked:
    """What the ranks' questions come to."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._work: dict[int, list[int]] = {}
        """By rank, the ``n`` of steps, calls and its own writes: nobody who waits does any of these in between."""
        self._waits: dict[int, list[Touch]] = defaultdict(list)
        """By rank: questions that were asked until the answer was yes."""
        self._part_of_wait: set[tuple[int, int]] = set()
        self._records: dict[int, list[ev.Record]] = {}
        for queries in files.queries.values():
            self._sort_out(queries)

    def _sort_out(self, queries: Sequence[Touch]) -> None:
        """The questions after one path, each line's in turns that nothing interrupts."""
        turns = by_key(((query.number, query.where, self._turn(query)), query) for query in queries)
        for turn in turns.values():
            again = not turn[0].record.existed and turn[-1].record.existed
            if again or any(query.record.polled for query in turn):
                self._part_of_wait.update((query.number, query.start) for query in turn)
                self._waits[turn[0].number] += [query for query in turn if query.record.existed]

    def _turn(self, query: Touch) -> int:
        rank = query.rank
        if rank.rank not in self._work:
            made = [r.n for r in rank.of(ev.File) if r.op in ("write", "rename")]
            self._work[rank.rank] = sorted([*made, *(s.n for s in rank.of(ev.Step)), *(c.n for c in rank.of(ev.Call))])
        return bisect_right(self._work[rank.rank], query.start)

    def is_wait(self, query: Touch) -> bool:
        """Whether it is asked until the answer is yes, so that no single answer decides anything."""
        return query.record.polled or (query.number, query.start) in self._part_of_wait

    def has_waited_for(self, change: Touch, read: Touch) -> bool:
        """Whether the reader has waited for a file that the writer makes only after the change, or by it.

        What is renamed, or made as an empty marker, is whole as soon as it is there.
        """
        for query in self._waits.get(read.number, ()):
            if query.start < read.start:
                for made in self._files.writes.get(query.path, ()):
                    at_once = made.record.op == "rename" or made.record.how in CLAIMS
                    if made.rank is change.rank and (
                        made.start > change.end or (at_once and made.record is change.record)
                    ):
                        return True
        return False

    def is_settled(self, query: Touch) -> Settled:
        """Whether the ranks agree on what was seen before anything comes of it: by the collective that follows.

        It may be so where something else stands between the two that is no use of the file.
        """
        directly = True
        for record in self._after(query.rank, query.start):
            if isinstance(record, ev.Call) and not record.thread:
                return ("yes" if directly else "maybe") if _carries_a_decision(record) else "no"
            if isinstance(record, ev.Step | ev.StateLoaded):
                return "no"
            if isinstance(record, ev.File) and record.op not in ("query", "content", "join"):
                return "no"
            directly = directly and isinstance(record, ev.File | ev.Site | ev.Pulse | ev.Call)
        return "no"

    def leads_to_load(self, read: Touch) -> bool:
        """Whether a rank loads state right after it has read a file: of the name that it found there, maybe."""
        for record in self._after(read.rank, read.start):
            if isinstance(record, ev.StateLoaded) or (isinstance(record, ev.File) and record.how in LOADS):
                return True
            if isinstance(record, ev.Step | ev.Call):
                return False
        return False

    def _after(self, rank: Rank, n: int) -> Iterator[ev.Record]:
        """What a rank has put on record after a moment, in order."""
        if rank.rank not in self._records:
            kept = sorted((r for r in rank.process.records if rank.start <= r.n < rank.end), key=_number)
            self._records[rank.rank] = kept
        records = self._records[rank.rank]
        return islice(records, bisect_right(records, n, key=_number), None)


def _number(record: ev.Record) -> int:
    return record.n


def _carries_a_decision(call: ev.Call) -> bool:
    """Whether a collective may have one rank's answer, or all ranks', reach the others: objects, or a few numbers."""
    if "object" in call.op:
        return True
    sizes = _ELEMENTS.findall(call.detail)
    return call.op.startswith(SETTLED_BY) and bool(sizes) and all(int(size) <= FEW for size in sizes)
