"""A timeline as the page holds it: names as plain data, the events as columns of numbers, deflated."""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from typing import Any

from ddpcheck.report.page.safe_text import brief
from ddpcheck.report.timeline.timeline import KINDS, TITLES, Lane, Timeline

LONGEST = 200
"""Characters of a name, a line or a message in the timeline; a card of a finding has it whole."""
_MOST = 2**32 - 1


def packed(timeline: Timeline) -> dict[str, Any]:
    """What timeline.js reads: see its beginning."""
    unit = _unit(timeline.end)
    data = bytearray()
    lanes = []
    for lane in timeline.lanes:
        columns = _columns(lane, unit)
        lanes.append(_described(lane, unit) | {"columns": [[len(column), _width(column)] for column in columns]})
        for column in columns:
            data += _planes(column)
    return {
        "unit": unit,
        "end": timeline.end // unit,
        "kinds": list(KINDS),
        "titles": list(TITLES),
        "labels": [[one.kind, brief(one.text, LONGEST), one.place, one.group] for one in timeline.labels],
        "places": [
            [brief(p.file, LONGEST), p.line, brief(p.function, LONGEST), brief(p.text, LONGEST)]
            for p in timeline.places
        ],
        "groups": [list(group.lanes) for group in timeline.groups],
        "pairs": [int(">" in group.name) for group in timeline.groups],
        "lanes": lanes,
        "marks": [[mark.finding, mark.lane, max(0, mark.at // unit)] for mark in timeline.marks],
        "alone": [[one.lane, one.at // unit, one.group, one.number, list(one.lacking)] for one in timeline.alone],
        "events": base64.b64encode(zlib.compress(bytes(data), 6)).decode("ascii"),
    }


def _unit(end: int) -> int:
    """Microseconds of one unit: one, unless the run is so long that its end would be too large a number."""
    unit = 1
    while end // unit > _MOST:
        unit *= 10
    return unit


def _described(lane: Lane, unit: int) -> dict[str, Any]:
    return {
        "rank": lane.rank,
        "title": lane.title,
        "host": brief(lane.host, LONGEST),
        "start": lane.start // unit,
        "end": lane.end // unit,
        "moments": [[m.at // unit, m.kind, brief(m.text, LONGEST), m.place] for m in lane.moments],
        "passes": [[p.start // unit, p.end // unit, p.text, int(p.trains)] for p in lane.passes],
    }


def _columns(lane: Lane, unit: int) -> list[array[int]]:
    """Kind; beginning since that of the one before; length; label; number: and of those that were merged, more."""
    events = lane.events
    starts = [max(0, start) // unit for start in events.starts]
    merged = [place for place, count in enumerate(events.counts) if count > 1]
    return [
        array("I", events.kinds),
        array("I", (b - a for a, b in zip([0, *starts], starts, strict=False))),
        array("I", (min(length // unit, _MOST) for length in events.lengths)),
        array("I", events.labels),
        array("I", (number & _MOST for number in events.numbers)),
        array("I", merged),
        array("I", (events.counts[place] for place in merged)),
        array("I", (min(events.busy[place] // unit, _MOST) for place in merged)),
    ]


def _width(column: array[int]) -> int:
    """The bytes that its numbers need."""
    return (max(column, default=0).bit_length() + 7) // 8


def _planes(column: array[int]) -> bytes:
    """All first bytes, then all second ones …, as many as are needed: what is alike lies together."""
    if sys.byteorder == "big":
        column = array("I", column)
        column.byteswap()
    data = column.tobytes()
    return b"".join(data[place::4] for place in range(_width(column)))
