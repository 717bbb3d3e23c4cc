"""The trace, held to the format that Chrome's and Perfetto's documentation describe."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict

import pytest
from msgspec.structs import replace

from ddpcheck.report import trace_file
from ddpcheck.report.timeline.timeline import Timeline
from tests.report.timeline.made import finding, made
from tests.report.verdicts import HELD, VIOLATED
from tests.simulated_evidence import Training

REQUIRED = {"X": {"ts", "dur", "tid"}, "M": {"args"}, "i": {"ts", "s"}, "s": {"id", "ts"}, "t": {"id", "ts"},
            "f": {"id", "ts", "bp"}}  # fmt: skip


def opened(tmp_path, verdict, timeline):
    path = tmp_path / "trace.json.gz"
    trace_file.write(verdict, path, timeline)
    return json.loads(gzip.decompress(path.read_bytes()))


def checked(document):
    """The events, each with what its phase asks for."""
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert {"ph", "pid", "name"} <= event.keys()
        assert REQUIRED[event["ph"]] <= event.keys(), event
        assert all(event.get(field, 0) >= 0 for field in ("ts", "dur"))
    return document["traceEvents"]


def test_ranks_are_processes_with_tracks(tmp_path):
    """Named and in order; every slice on a track that has a name."""
    events = checked(opened(tmp_path, HELD, made(Training(ranks=3, steps=20))))
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {1: "rank 0 on host0", 2: "rank 1 on host0", 3: "rank 2 on host0"}
    tracks = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    assert {(event["pid"], event["tid"]) for event in slices} <= tracks.keys()
    of = defaultdict(set)
    for event in slices:
        of[tracks[event["pid"], event["tid"]]].add(event["cat"])
    assert of["compute"] == {"forward", "backward", "step"}
    assert of["collectives"] == {"collective"}
    assert of["files"] == {"save"}
    assert of["data"] == {"data", "pass"}


def test_slices_have_their_lines():
    """And what they are the how-manieth of."""
    text = "".join(trace_file.pieces(HELD, made(Training(steps=5))))
    steps = [event for event in json.loads(text)["traceEvents"] if event.get("cat") == "step"]
    assert steps[3]["args"] == {"kind": "step", "line": "train.py:6 in main", "code": "optimizer.step()", "step": 3}


def test_slices_of_a_track_are_nested(tmp_path):
    """Two slices of one track lie within each other, or apart: a viewer drops what overlaps."""
    events = checked(opened(tmp_path, HELD, made(Training(ranks=2, steps=50, late=1))))
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        open_ends = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 2
            open_ends.append(end)


def test_calls_that_belong_together_are_flows(tmp_path):
    """One flow for each call: from the first rank to the last to come, each end within a slice of a call."""
    events = checked(opened(tmp_path, HELD, made(Training(ranks=3, steps=10, late=1))))
    flows = defaultdict(list)
    starts = {(event["pid"], event["tid"], event["ts"]) for event in events if event["ph"] == "X"}
    for event in events:
        if event["ph"] in "stf":
            flows[event["id"]].append(event)
            assert (event["pid"], event["tid"], event["ts"]) in starts
    assert len(flows) == 12  # a constructor, ten reductions, a barrier
    for flow in flows.values():
        ordered = sorted(flow, key=lambda event: event["ts"])
        assert {event["pid"] for event in flow} == {1, 2, 3}
        assert sorted(event["ph"] for event in flow) == ["f", "s", "t"]
        assert ordered[0]["ts"] == next(event["ts"] for event in flow if event["ph"] == "s")
        assert ordered[-1]["ts"] == next(event["ts"] for event in flow if event["ph"] == "f")


def test_findings_are_instants(tmp_path):
    """At their moments, with the fix."""
    one = finding(step=4)
    events = checked(opened(tmp_path, replace(VIOLATED, findings=(one,)), made(Training(steps=10), [one])))
    (instant,) = [event for event in events if event.get("cat") == "finding"]
    assert instant["name"] == "finding 1: gradient-sync: net.weight"
    assert instant["args"]["fix"] == "Treat them alike."
    assert instant["s"] == "p"


@pytest.mark.parametrize("timeline", [Timeline(), made(Training(steps=2_000), most=2_000), made(Training(hangs=0))])
def test_any_timeline_makes_a_trace(tmp_path, timeline):
    """None at all, one that was thinned, one of a deadlock."""
    checked(opened(tmp_path, HELD, timeline))


def test_texts_of_any_kind(tmp_path):
    """Lone surrogates and control characters are escapes in JSON."""
    bad = 'a"\\ \ud800 \x00 </script>'
    timeline = made(Training(steps=2))
    timeline = replace(timeline, labels=tuple(one._replace(text=bad) for one in timeline.labels))
    document = opened(tmp_path, replace(HELD, command=bad), timeline)
    assert any(event["name"].startswith('a"') for event in checked(document))
