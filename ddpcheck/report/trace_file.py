"""The timeline as a trace in Chrome's JSON format, gzipped: Perfetto (ui.perfetto.dev) and chrome://tracing open it.

Each rank is a process with four tracks: compute, collectives, data and files. Calls
that belong together are joined by flows, and findings are instants.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddpcheck.report import report_files
from ddpcheck.report.timeline.timeline import COLLECTIVE, DATA, KINDS, LOAD, SAVE, STEP, WAIT, Lane, Timeline
from ddpcheck.verdict.verdict import Verdict

TRACKS = ("compute", "collectives", "data", "files")
_COMPUTE, _CALLS, _DATA, _FILES = range(1, 5)
_TRACK = {COLLECTIVE: _CALLS, WAIT: _CALLS, DATA: _DATA, SAVE: _FILES, LOAD: _FILES}
_LONG = 500
"""Characters of a text."""


def write(verdict: Verdict, path: Path, timeline: Timeline) -> None:
    """Write the trace, whole or not at all."""
    room = io.BytesIO()
    with gzip.GzipFile(fileobj=room, mode="wb", compresslevel=6, mtime=0) as packed:
        for piece in pieces(verdict, timeline):
            packed.write(piece.encode("utf-8", "backslashreplace"))
    report_files.write_bytes(path, room.getvalue())


def pieces(verdict: Verdict, timeline: Timeline) -> Iterator[str]:
    """The JSON, event by event: a long run has more of them than one text should hold."""
    about: dict[str, Any] = {"command": verdict.command, "verdict": verdict.verdict, "notes": list(timeline.notes)}
    about |= {f"version of {name}": version for name, version in verdict.versions.items()}
    yield f'{{"displayTimeUnit":"ms","otherData":{_json(about)},"traceEvents":[\n'
    yield _json({"ph": "M", "name": "trace_name", "pid": 0, "args": {"name": verdict.command[:_LONG]}})
    flows = _flows(timeline)
    prefixes = [_prefix(timeline, place) for place in range(len(timeline.labels))]
    for number, lane in enumerate(timeline.lanes):
        for event in _named(lane, number):
            yield ",\n" + _json(event)
        yield from _events(lane, number, timeline, prefixes, flows)
        for moment in lane.moments:
            args = _line(timeline, moment.place)
            yield ",\n" + _json(_instant(number, moment.at, moment.text[:_LONG], "t", "moment", args))
        for stretch in lane.passes:
            yield ",\n" + _json(
                {"ph": "X", "name": stretch.text, "cat": "pass", "pid": number + 1, "tid": _DATA, "ts": stretch.start,
                 "dur": stretch.end - stretch.start, "args": {"batches": stretch.batches, "samples": stretch.samples}}
            )  # fmt: skip
    for mark in timeline.marks:
        finding = verdict.findings[mark.finding]
        args = {
            "severity": finding.severity, "expected": finding.expected[:_LONG], "found": finding.found[:_LONG],
            "cause": finding.cause[:_LONG], "fix": finding.advice[:_LONG],
            "where": str(finding.where) if finding.where is not None else "",
        }  # fmt: skip
        text = f"finding {mark.finding + 1}: {finding.name}: {finding.subject}"[:_LONG]
        yield ",\n" + _json(_instant(mark.lane, mark.at, text, "p", "finding", args))
    yield "\n]}\n"


def _named(lane: Lane, number: int) -> Iterator[dict[str, Any]]:
    """What the rank and its tracks are called, and their order."""
    of = {"ph": "M", "pid": number + 1}
    host = f" on {lane.host}" if lane.host else ""
    yield {**of, "name": "process_name", "args": {"name": lane.title + host}}
    yield {**of, "name": "process_sort_index", "args": {"sort_index": number}}
    for track, name in enumerate(TRACKS, 1):
        yield {**of, "tid": track, "name": "thread_name", "args": {"name": name}}
        yield {**of, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}


def _events(
    lane: Lane, number: int, timeline: Timeline, prefixes: list[str], flows: dict[tuple[int, int, int], str]
) -> Iterator[str]:
    pid = number + 1
    for event in lane.events:
        track = _TRACK.get(event.kind, _COMPUTE)
        args = ""
        if event.times > 1:
            args = f',"merged":{event.times},"busy in us":{event.busy}'
        elif event.kind == STEP:
            args = f',"step":{event.number}'
        elif track == _CALLS:
            args = f',"call":{event.number}'
        yield (
            f',\n{prefixes[event.label]}{args}}},"pid":{pid},"tid":{track},"ts":{event.start},"dur":{event.length}}}'
        )
        if event.kind == COLLECTIVE and event.times == 1:
            flow = flows.get((timeline.labels[event.label].group, event.number, number))
            if flow is not None:
                yield f',\n{flow},"pid":{pid},"tid":{track},"ts":{event.start}}}'


def _prefix(timeline: Timeline, place: int) -> str:
    """The part that all events of a label share, up to where further arguments go."""
    label = timeline.labels[place]
    args = {"kind": KINDS[label.kind], **_line(timeline, label.place)}
    name, kind = _json(label.text[:_LONG]), _json(KINDS[label.kind])
    return f'{{"ph":"X","name":{name},"cat":{kind},"args":{_json(args)[:-1]}'


def _line(timeline: Timeline, place: int) -> dict[str, str]:
    if place < 0:
        return {}
    found = timeline.places[place]
    return {"line": f"{found.file}:{found.line} in {found.function}", "code": found.text}


def _flows(timeline: Timeline) -> dict[tuple[int, int, int], str]:
    """The beginning of a flow's event for each call that others have made, too: by group, number and lane."""
    calls: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, lane in enumerate(timeline.lanes):
        columns = lane.events
        for kind, start, label, call, count in zip(
            columns.kinds, columns.starts, columns.labels, columns.numbers, columns.counts, strict=True
        ):
            group = timeline.labels[label].group
            if kind == COLLECTIVE and count == 1 and group >= 0:
                calls.setdefault((group, call), []).append((start, number))
    found = {}
    for flow, ((group, call), ranks) in enumerate(calls.items(), 1):
        ranks.sort()
        for place, (_, number) in enumerate(ranks if len(ranks) > 1 else ()):
            phase = "s" if place == 0 else "f" if place == len(ranks) - 1 else "t"
            ends = ',"bp":"e"' if phase == "f" else ""
            found[group, call, number] = f'{{"ph":"{phase}"{ends},"id":{flow},"name":"call","cat":"matched"'
    return found


def _instant(lane: int, at: int, name: str, scope: str, category: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "s": scope, "name": name, "cat": category, "pid": lane + 1, "tid": _COMPUTE, "ts": at,
            "args": args}  # fmt: skip


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
