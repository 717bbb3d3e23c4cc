"""What counts as progress of a process: what it writes down, and places where it has not been since."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Process
from ddpcheck.run.rank_liveness import Progress
from tests.judging.written import FILE


def pulse(at, doing, pending=None):
    return ev.Pulse(n=0, at=at, site=1, doing=doing, pending=pending)


def file(at, thread=""):
    return ev.File(n=0, at=at, **{**FILE, "thread": thread}, op="write", path="p", site=1, ended=0)


def seen(*looks):
    """When progress was seen last, after each of several looks at a process."""
    process, progress = Process("p"), Progress()
    found = []
    for records in looks:
        process.add(records)
        found.append(progress.last(process))
    return found


def test_records_are_progress():
    """Those of the main thread."""
    assert seen([file(1.0)], [file(2.0), file(3.0, thread="writer")], []) == [1.0, 2.0, 2.0]


def test_a_place_is_progress_once():
    """A loop that waits for a file comes by the same lines again and again."""
    loop = [pulse(float(n), ("sleep", "exists")[n % 2]) for n in range(2, 60)]
    assert seen([file(1.0)], loop[:20], loop[20:]) == [1.0, 3.0, 3.0]
    assert seen([file(1.0)], loop, [file(70.0), pulse(71.0, "sleep")]) == [1.0, 3.0, 71.0]


def test_to_wait_is_none():
    """That a rank waits in a call is told once it does."""
    assert seen([file(1.0), pulse(2.0, "wait", pending=7)]) == [1.0]
