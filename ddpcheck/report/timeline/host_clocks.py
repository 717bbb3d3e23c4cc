"""Clocks of several hosts beside each other: by the time of day, and then by the calls that end together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ddpcheck.report.timeline.lane_builder import LaneBuilder

ENOUGH = 2_000
"""Calls by which two clocks are compared."""


def align(lanes: Sequence[LaneBuilder]) -> list[str]:
    """Put all lanes on the clock of the first one's host; what a reader has to know of it, as sentences."""
    hosts: dict[str, list[LaneBuilder]] = {}
    for lane in lanes:
        if lane.began is not None:
            hosts.setdefault(lane.began.host, []).append(lane)
    if len(hosts) < 2:
        return []
    reference, *others = hosts.values()
    zero = _by_day(reference[0])
    by_calls = True
    for there in others:
        by = _by_day(there[0]) - zero
        found = [by + apart for apart in _apart(reference, there, by)]
        for lane in there:
            lane.shift(round(median(found)) if found else by)
        by_calls &= bool(found)
    how = "the ends of their shared collectives" if by_calls else "the time of day, as far as no shared collectives end"
    return [f"The clocks of {len(hosts)} hosts were put beside each other by {how}: to some milliseconds."]


def _by_day(lane: LaneBuilder) -> int:
    """The time of day at the beginning of a host's monotonic clock."""
    began = lane.began
    return round((began.wall - began.at) * 1e6) if began is not None else 0


def _apart(here: Sequence[LaneBuilder], there: Sequence[LaneBuilder], by: int) -> Iterator[int]:
    """How much later the same calls end here than there, once that one's clock is moved by so much."""
    left = ENOUGH
    for one in here:
        for group, mine in one.met.items():
            for other in there:
                if (theirs := other.met.get(group)) is None:
                    continue
                ends: Mapping[int, int] = dict(zip(theirs.numbers[:ENOUGH], theirs.ends[:ENOUGH], strict=True))
                for number, start, end in zip(mine.numbers[:ENOUGH], mine.starts[:ENOUGH], mine.ends, strict=False):
                    if end > start and number in ends:
                        yield end - ends[number] - by
                        left -= 1
                        if not left:
                            return
