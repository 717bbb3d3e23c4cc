"""The timeline of a run, from its evidence: process by process, each file gone through once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Process, World
from ddpcheck.report.timeline.awaited_ranks import alone, groups, note_waits
from ddpcheck.report.timeline.host_clocks import align
from ddpcheck.report.timeline.label_table import Labels
from ddpcheck.report.timeline.lane_builder import LaneBuilder
from ddpcheck.report.timeline.timeline import Lane, Mark, Timeline
from ddpcheck.vocabulary import regular_files
from ddpcheck.vocabulary.model import Finding

MOST = 2_000_000
"""Events of all ranks together, about; of more, those far from findings and from the end are merged."""
_PIECE = 1 << 20
"""Bytes that are read at once."""

Records = Callable[[Process], Iterable[Any]]
"""The records of a process, once more from the beginning."""


class _Part(NamedTuple):
    """A rank's part of a process."""

    rank: int
    process: Process
    start: float
    end: float
    world: int


def in_memory(process: Process) -> Iterable[Any]:
    """The records that a process still has."""
    return process.records


def in_folder(folder: Path) -> Records:
    """The records in the files of a folder; of a file that cannot be read, those up to there."""

    def records(process: Process) -> Iterator[Any]:
        try:
            with regular_files.opened(folder / process.name) as opened:
                header = opened.read(len(ev.HEADER) + 1)
                if header[:-1] != ev.HEADER:
                    return
                reader = ev.Reader()
                while data := opened.read(_PIECE):
                    yield from reader.feed(data)
        except OSError:
            return

    return records


def timeline(
    worlds: Sequence[World],
    processes: Iterable[Process],
    records: Records = in_memory,
    findings: Sequence[Finding] = (),
    most: int = MOST,
) -> Timeline:
    """The lanes of all ranks, with the moments of these findings; where none has joined, of those that were started."""
    parts = _parts(worlds, list(processes))
    labels = Labels()
    each = max(1_000, most // max(1, len(parts)))
    built = [_lane(part, records, labels, findings, each) for part in parts]
    built = [lane for lane in built if lane.began is not None]
    notes = align(built)
    named = groups(built, labels)
    waits = note_waits(built, named, labels)
    unmatched = alone(built, named, labels)
    origin = min((lane.start for lane in built), default=0)
    marks = [
        Mark(finding, place, round(at * 1e6) + lane.shifted - origin)
        for place, lane in enumerate(built)
        for finding, at in lane.looked.found().items()
    ]
    several = len({lane.world for lane in built}) > 1
    lanes = []
    for lane in built:
        lane.shift(-origin)
        lanes.append(
            Lane(
                rank=lane.rank,
                title=f"rank {lane.rank}" + (f", group {lane.world + 1}" if several else ""),
                host=lane.began.host if lane.began is not None else "",
                start=lane.start,
                end=lane.end,
                events=lane.columns,
                moments=tuple(lane.moments),
                passes=tuple(lane.passes),
                sums=lane.sums,
                merged=lane.merged,
                left_out=lane.left_out,
                note=lane.note,
            )
        )
    return Timeline(
        lanes=tuple(lanes),
        labels=tuple(labels.labels),
        places=tuple(labels.places),
        groups=named,
        marks=tuple(sorted(marks, key=lambda mark: (mark.finding, mark.at))),
        waits=waits,
        alone=tuple(one._replace(at=one.at - origin) for one in unmatched),
        notes=(*notes, *_notes(lanes)),
        end=max((lane.end for lane in lanes), default=0),
    )


def _parts(worlds: Sequence[World], processes: Sequence[Process]) -> list[_Part]:
    found = [
        _Part(rank.rank, rank.process, rank.start, rank.end, number)
        for number, world in enumerate(worlds)
        for rank in world
    ]
    if found:
        return found
    launched = [(p.began.rank, p) for p in processes if p.began is not None and p.began.rank is not None]
    return [
        _Part(rank, process, 0, math.inf, 0)
        for rank, process in sorted(launched, key=lambda one: one[0])
        if process.began is not None and process.began.worker_of is None
    ]


def _lane(part: _Part, records: Records, labels: Labels, findings: Sequence[Finding], most: int) -> LaneBuilder:
    lane = LaneBuilder(part.rank, labels, findings, most, part.world)
    lane.note = part.process.gap or ("a part of its file is damaged" if part.process.damaged else "")
    for record in records(part.process):
        if isinstance(record, ev.Site):
            lane.site(record)
        elif isinstance(record, ev.Began) or part.start <= record.n < part.end:
            lane.see(record)
    lane.finish()
    return lane


def _notes(lanes: Sequence[Lane]) -> Iterator[str]:
    """How far the lanes can be trusted."""
    if any(lane.merged for lane in lanes):
        yield (
            "There were more events than a page can hold: those around the findings and of the last part are shown "
            "one by one, the others merged."
        )
    left_out = sum(lane.left_out for lane in lanes)
    if left_out:
        yield f"{left_out:,} forwards and batches are left out, where there were very many between two steps."
    for lane in lanes:
        if lane.note:
            yield f"The evidence of {lane.title} is not whole: {lane.note}."
