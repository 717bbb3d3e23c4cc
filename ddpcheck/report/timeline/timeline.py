"""The ranks' work side by side: one lane for each rank, on one clock."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ddpcheck.report.timeline.columns import Columns
from ddpcheck.vocabulary.model import Struct

KINDS = ("forward", "evaluation", "backward", "step", "data", "collective", "wait", "save", "load")
FORWARD, EVALUATION, BACKWARD, STEP, DATA, COLLECTIVE, WAIT, SAVE, LOAD = range(len(KINDS))
TITLES = (
    "forward",
    "forward without gradients",
    "backward",
    "optimizer step",
    "waiting for data",
    "collective",
    "waiting for a collective",
    "save",
    "load",
)
"""What each kind is called, by its number."""


class Place(NamedTuple):
    """A line of the program, and its text."""

    file: str
    line: int
    function: str
    text: str


class Label(NamedTuple):
    """What events of one line have in common."""

    kind: int
    text: str
    place: int = -1
    """By its number in ``Timeline.places``; -1 for none."""
    group: int = -1
    """Of a collective, by its number in ``Timeline.groups``: calls of one group with one number belong together."""


class Group(NamedTuple):
    """Calls that are counted together: those of a process group, or the messages from one rank to another."""

    name: str
    lanes: tuple[int, ...]
    """Who takes part, as far as they have a lane."""


class Moment(NamedTuple):
    """Something that took no time."""

    at: int
    kind: str
    """``joined``, ``left``, ``raised``, ``ended``, ``loaded``, ``stuck``."""
    text: str
    place: int


class Stretch(NamedTuple):
    """A pass through a loader."""

    start: int
    end: int
    text: str
    trains: bool
    samples: int
    batches: int


class Sums(msgspec.Struct, kw_only=True):
    """What a lane comes to, in all: nothing is left out of these."""

    steps: int = 0
    samples: int = 0
    batches: int = 0
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """By kind; ``reduction`` is what of the backwards was with DDP's reduction, ``building`` DDP's constructor."""
    waited: float = 0.0
    """Of these, waiting for ranks that came later to a collective."""
    waited_in_backward: float = 0.0
    caused: float = 0.0
    """Seconds that other ranks waited for this one, each rank's added up."""


class Lane(Struct, frozen=True, kw_only=True):
    """One rank. Times are microseconds since the timeline's beginning."""

    rank: int
    title: str
    host: str = ""
    start: int = 0
    end: int = 0
    events: Columns
    moments: tuple[Moment, ...] = ()
    passes: tuple[Stretch, ...] = ()
    sums: Sums
    merged: bool = False
    """Events far from any finding and from the end are merged."""
    left_out: int = 0
    """Events that the rank has not recorded, because there were too many between two steps."""
    note: str = ""
    """What is missing of it, as a clause."""


class Mark(NamedTuple):
    """Where a finding is on the timeline."""

    finding: int
    """From 0, in the order of the report."""
    lane: int
    at: int


class Awaited(NamedTuple):
    """Who waited for whom, at one line."""

    lane: int
    late: int
    """The lane that came last."""
    place: int
    text: str
    seconds: float
    times: int


class Alone(NamedTuple):
    """A call that some rank of its group has not made alike."""

    lane: int
    at: int
    group: int
    number: int
    lacking: tuple[int, ...]
    """The lanes that have made no such call, or another one."""


class Timeline(Struct, frozen=True, kw_only=True):
    """All of it."""

    lanes: tuple[Lane, ...] = ()
    labels: tuple[Label, ...] = ()
    places: tuple[Place, ...] = ()
    groups: tuple[Group, ...] = ()
    marks: tuple[Mark, ...] = ()
    waits: tuple[Awaited, ...] = ()
    """The longest first."""
    alone: tuple[Alone, ...] = ()
    notes: tuple[str, ...] = ()
    """How far the times can be trusted, as sentences."""
    end: int = 0

    @property
    def events(self) -> int:
        return sum(len(lane.events) for lane in self.lanes)
