"""A timeline as the page holds it: names as plain data, the events as columns of numbers, deflated."""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Iterable
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
        lanes.append(_described(lane, unit) | {"count": len(lane.events), "merged": len(columns[-1]) // 4})
        for column in columns:
            data += column
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


def _columns(lane: Lane, unit: int) -> list[bytes]:
    """Kind; beginning since that of the one before; length; label; number: and of those that were merged, more."""
    events = lane.events
    starts = [max(0, start) // unit for start in events.starts]
    deltas = [b - a for a, b in zip([0, *starts], starts, strict=False)]
    merged = [place for place, count in enumerate(events.counts) if count > 1]
    return [
        events.kinds.tobytes(),
        _planes(deltas),
        _planes(min(length // unit, _MOST) for length in events.lengths),
        _planes(events.labels),
        _planes(number & _MOST for number in events.numbers),
        _planes(merged),
        _planes(events.counts[place] for place in merged),
        _planes(min(events.busy[place] // unit, _MOST) for place in merged),
    ]


def _planes(numbers: Iterable[int]) -> bytes:
    """Four bytes each; all first bytes, then all second ones …: what is alike lies together."""
    data = array("I", numbers).tobytes()
    return data[0::4] + data[1::4] + data[2::4] + data[3::4]
