"""One rank's lane, from its records one after the other: in bounded memory, however long the run."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ddpcheck import evidence as ev
from ddpcheck.evidence import FIELDS, PAIRWISE, RECEIVES, SPAN_KINDS
from ddpcheck.judging.call_divergence import NAMES, name
from ddpcheck.judging.happens_before import UNFINISHED
from ddpcheck.judging.happens_before import WAIT as WAIT_OP
from ddpcheck.report.timeline.columns import Columns, thinned
from ddpcheck.report.timeline.finding_moments import Moments
from ddpcheck.report.timeline.label_table import Labels
from ddpcheck.report.timeline.timeline import (
    BACKWARD,
    COLLECTIVE,
    DATA,
    EVALUATION,
    FORWARD,
    KINDS,
    LOAD,
    SAVE,
    STEP,
    TITLES,
    WAIT,
    Label,
    Moment,
    Place,
    Stretch,
    Sums,
)  # fmt: skip
from ddpcheck.vocabulary.model import Finding

_OF_SPAN = {"forward": FORWARD, "evaluation": EVALUATION, "backward": BACKWARD, "step": STEP, "data": DATA}
_CALL, _FILE = SPAN_KINDS.index("call"), SPAN_KINDS.index("file")
_MOST_OPEN = 4096
"""Calls and files whose end is still looked for."""
_MOST_PASSES = 2_000
_MOST_MOMENTS = 500
REDUCTION = NAMES["ddp-gradients"]
WITHIN = "reduction"
"""The part of the backwards in which DDP reduces: it goes on while they compute."""
BUILDING = "building"
"""DDP's constructor, which takes long where ranks start at different times."""
MOST_MET = 250_000
"""Calls of one rank by which it is worked out who waited for whom."""


class Met:
    """The calls of one rank on one group: number, beginning, end, label, in the order of their numbers."""

    def __init__(self) -> None:
        self.numbers, self.starts, self.ends = array("q"), array("q"), array("q")
        self.labels = array("i")
        self.waits: dict[int, tuple[int, int]] = {}
        """Of asynchronous calls that were waited for, by number: from when to when."""

    def add(self, number: int, start: int, end: int, label: int) -> None:
        if self.numbers and number <= self.numbers[-1]:
            return  # written down late, or counted again
        self.numbers.append(number)
        self.starts.append(start)
        self.ends.append(end)
        self.labels.append(label)


class LaneBuilder:
    """Takes the records of one process that belong to one rank of one world."""

    def __init__(self, rank: int, labels: Labels, findings: Sequence[Finding], most: int, world: int = 0) -> None:
        self.rank = rank
        self.columns = Columns()
        self.moments: list[Moment] = []
        self.passes: list[Stretch] = []
        self.sums = Sums(seconds=dict.fromkeys((*KINDS, WITHIN, BUILDING), 0.0))
        self.met: dict[int, Met] = {}
        self.merged = False
        self.left_out = 0
        self.shifted = 0
        """How far it was moved from its own clock."""
        self.began: ev.Began | None = None
        self.start = self.end = 0
        self.looked = Moments(findings, rank)
        self.size = 0
        """Ranks of its world, once it has joined."""
        self.note = ""
        """What is missing of it, as a clause."""
        self._labels = labels
        self._most = most
        self.world = world
        self._sites: dict[int, int] = {}
        self._open: dict[int, tuple[int, int, int, int, int]] = {}
        """By ``n``: kind, start, label, number, and the group of a call."""
        self._passes: dict[tuple[int, int], tuple[ev.Pass, int, int, int]] = {}
        self._span_labels: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[Any, ...], int] = {}
        self._by_kind: dict[type, Callable[[Any, int], None]] = {
            ev.Spans: self._spans,
            ev.Call: self._call,
            ev.File: self._file,
            ev.Pulse: self._pulse,
            ev.Batch: self._batch,
            ev.Pass: self._pass,
            ev.PassEnded: lambda ended, at: self._pass_ended(ended.loader, ended.number, at, ended),
            **dict.fromkeys((ev.Began, ev.Joined, ev.Left, ev.Raised, ev.Ended, ev.StateLoaded), self._moment),
        }
        self._pending: int | None = None
        self._took: dict[int, int] = defaultdict(int)
        """By label, microseconds in all."""
        self._met = 0

    # --- records

    def site(self, site: ev.Site) -> None:
        """A line got its number: lines belong to the process, whichever of its groups they were met in."""
        self._sites[site.id] = self._labels.place(Place(site.file, site.line, site.function, site.text))
        self.looked.site(site)

    def see(self, record: Any) -> None:
        """Take in one record of this membership."""
        at = _us(record.at)
        self.end = max(self.end, at)
        self.looked.see(record)
        do = self._by_kind.get(type(record))
        if do is not None:
            do(record, at)

    def _pulse(self, pulse: ev.Pulse, at: int) -> None:
        self._pending = pulse.pending

    def _batch(self, batch: ev.Batch, at: int) -> None:
        key = batch.loader, batch.pass_
        if (known := self._passes.get(key)) is not None:
            self._passes[key] = known[0], known[1], batch.number + 1, known[3] + batch.samples

    def _pass(self, begun: ev.Pass, at: int) -> None:
        if len(self._passes) < _MOST_PASSES:
            self._passes[begun.loader, begun.number] = begun, at, 0, 0

    def _spans(self, row: ev.Spans, at: int) -> None:
        self.left_out += row.left_out
        base, packed = _us(row.base), row.packed
        for place in range(0, len(packed) - FIELDS + 1, FIELDS):
            code, start, length, site, number = packed[place : place + FIELDS]
            start += base
            if code in (_CALL, _FILE):
                known = self._open.pop(number, None)
                if known is not None:
                    kind, begun, label, of, group = known
                    self._add(kind, begun, max(0, start + length - begun), label, of, group)
            elif 0 <= code < len(SPAN_KINDS):
                kind = _OF_SPAN[SPAN_KINDS[code]]
                if kind == STEP:
                    self.looked.step(number, site, start / 1e6)
                    self.sums.steps += 1
                labelled = self._span_labels.get((kind, site))
                if labelled is None:
                    labelled = self._span_labels[kind, site] = self._label(kind, TITLES[kind], site)
                self._add(kind, start, max(0, length), labelled, number)

    def _call(self, call: ev.Call, at: int) -> None:
        if call.op == UNFINISHED or call.group == "?":
            return
        kind = WAIT if call.op == WAIT_OP else COLLECTIVE
        key = (kind, call.op, call.detail, call.group, call.peer, call.site)
        label = self._known.get(key)
        if label is None:
            group = -1 if call.joined else self._group(call)
            text = f"wait for call {call.detail}".strip() if kind == WAIT else name(call)
            if kind == COLLECTIVE and not call.waits:
                text += ", asynchronous"
            label = self._label(kind, text, call.site, group)
            if len(self._known) < _MOST_OPEN:
                self._known[key] = label
        self._begun(call.n, kind, at, label, call.number, self._labels.labels[label].group)

    def _group(self, call: ev.Call) -> int:
        """Messages from one rank to another are counted by their tags."""
        if call.op in PAIRWISE:
            way = f"{call.peer}>{self.rank}" if call.op in RECEIVES else f"{self.rank}>{call.peer}"
            return self._labels.group(f"{self.world}|{call.group}|{way}|{call.detail}") if call.peer is not None else -1
        return self._labels.group(f"{self.world}|{call.group}")

    def _file(self, file: ev.File, at: int) -> None:
        if file.op in ("query", "join", "content", "append"):
            return
        kind = LOAD if file.op == "read" else SAVE
        text = f"{file.how or file.op} {file.path}" + (f" to {file.target}" if file.target else "")
        label = self._label(kind, text, file.site)
        if file.op in ("read", "write") and file.ended != file.n:
            self._begun(file.n, kind, at, label, 0, -1)
        else:
            self._add(kind, at, 0, label, 0)

    def _moment(self, record: Any, at: int) -> None:
        if isinstance(record, ev.Began):
            self.began, self.start = record, at
            return
        kind, text = "", ""
        if isinstance(record, ev.Joined):
            kind, text = "joined", f"joined a group of {record.world_size} as rank {record.rank} ({record.backend})"
            self.size = record.world_size
        elif isinstance(record, ev.Left):
            kind, text = "left", "left its group"
        elif isinstance(record, ev.Raised):
            kind, text = "raised", f"raised {record.kind}: {record.message}"[:300]
        elif isinstance(record, ev.Ended):
            kind, text = "ended", f"ended ({record.how})"
        elif isinstance(record, ev.StateLoaded):
            kind, text = "loaded", f"load_state_dict of {record.kind} ({record.owner})"
        if kind and (len(self.moments) < _MOST_MOMENTS or kind != "loaded"):
            self.moments.append(Moment(at, kind, text, self._sites.get(record.site, -1)))

    # --- events

    def _label(self, kind: int, text: str, site: int, group: int = -1) -> int:
        return self._labels.label(Label(kind, text, self._sites.get(site, -1), group))

    def _begun(self, n: int, kind: int, at: int, label: int, number: int, group: int) -> None:
        self._open[n] = kind, at, label, number, group
        if len(self._open) > _MOST_OPEN:  # an end that is not on record: it is a moment
            oldest = next(iter(self._open))
            kind, at, label, number, group = self._open.pop(oldest)
            self._add(kind, at, 0, label, number, group)

    def _add(self, kind: int, start: int, length: int, label: int, number: int, group: int = -1) -> None:
        self.columns.add(kind, start, length, label, number)
        self.end = max(self.end, start + length)
        self._took[label] += length
        if group >= 0 and self._met < MOST_MET:
            self._met += 1
            met = self.met.setdefault(group, Met())
            if kind == WAIT:
                met.waits[number] = start, start + length
            else:
                met.add(number, start, start + length, label)
        if len(self.columns) > 2 * self._most:
            self._thin()

    def _pass_ended(self, loader: int, number: int, at: int, ended: ev.PassEnded | None) -> None:
        known = self._passes.pop((loader, number), None)
        batches, samples = (ended.batches, ended.samples) if ended is not None else (0, 0)
        if known is not None:
            begun, start, seen, sampled = known
            if ended is None:
                batches, samples = seen, sampled
            epoch = f", epoch {begun.epoch}" if begun.epoch is not None else ""
            text = f"pass {number} of loader {loader}{epoch}"
            if len(self.passes) < _MOST_PASSES and batches:
                self.passes.append(Stretch(start, at, text, begun.grad, samples, batches))
        if known is None or known[0].grad:
            self.sums.batches += batches
            self.sums.samples += samples

    def finish(self) -> None:
        """No more records: what has not ended goes on to the end of the lane, if it is what the rank waits in."""
        for loader, number in list(self._passes):
            self._pass_ended(loader, number, self.end, None)
        for n, (kind, at, label, number, group) in list(self._open.items()):
            waits = n == self._pending or (self._pending is not None and n == max(self._open))
            self._add(kind, at, self.end - at if waits else 0, label, number, group)
            if waits:
                of = self._labels.labels[label]
                self.moments.append(Moment(at, "stuck", f"{of.text}: it has not come back from this", of.place))
        self._open.clear()
        for label, took in self._took.items():
            of = self._labels.labels[label]
            within = of.kind == COLLECTIVE and of.text == REDUCTION
            builds = of.text == NAMES["ddp-construct"]
            self.sums.seconds[WITHIN if within else BUILDING if builds else KINDS[of.kind]] += took / 1e6
        if len(self.columns) > self._most * 5 // 4:
            self._thin()
        else:
            self.columns.sort()

    def _thin(self) -> None:
        near = [_us(at) for at in (*self.looked.found().values(), *self.looked.near)]
        self.columns = thinned(self.columns, self._most, near, self._labels.generic)
        self.merged = True

    def shift(self, by: int) -> None:
        """Put it on another clock."""
        self.columns.shift(by)
        self.shifted += by
        self.start, self.end = self.start + by, self.end + by
        self.moments = [moment._replace(at=moment.at + by) for moment in self.moments]
        self.passes = [one._replace(start=one.start + by, end=one.end + by) for one in self.passes]
        for met in self.met.values():
            met.starts = array("q", [at + by for at in met.starts])
            met.ends = array("q", [at + by for at in met.ends])
            met.waits = {number: (a + by, b + by) for number, (a, b) in met.waits.items()}


def _us(at: float) -> int:
    return round(at * 1e6)
