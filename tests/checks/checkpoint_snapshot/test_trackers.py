"""Files that say of which step the last checkpoint is, and checkpoints with a step in their names."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_snapshot.trackers import judge
from tests.judging.written import file, step, world
from tests.judging.written_state import Forms, weight


def saved(number, line=10, forms=None, **more):
    more = {"thread": "Thread-9 (save)", **more}
    return (forms or Forms()).saved(line, f"/job/step-{number}.pt", weight("a", 1, 2), **more)


def noted(number, path="/job/latest.txt"):
    return file("write", "open", path, 30), file("content", "", path, 0, holds=number)


def of(*records):
    """The steps that are named too late."""
    findings = judge(world(list(records), world_size=1))
    return [f.found.partition(" naming ")[2].split()[0] for f in findings]


def test_a_note_that_is_made_at_once():
    assert of(step(5), *saved(1), *noted(1), step(5)) == []


def test_a_note_of_a_later_step():
    records = (step(5), *saved(1), step(5), *noted(2))
    assert of(*records) == ["2"]
    (found,) = judge(world(list(records), world_size=1))
    assert (found.severity, found.subject, found.where.line, found.proof[0][1].line) == (
        "warning",
        "latest.txt",
        30,
        10,
    )


def test_a_note_that_is_renamed():
    path = "/job/latest.new"
    rename = file("rename", "os.rename", path, 31, target="/job/latest.txt")
    assert of(step(5), *saved(1), step(5), *noted(2, path), rename) == ["2"]


@pytest.mark.parametrize("records", [
    (step(5), *saved(1), step(5), *noted(1)),  # late, and right
    (step(5), *saved(0), step(5), *noted(2)),  # counted otherwise: the next step to be made, or another thing
    (step(5), *saved(1), *noted(1), step(5), *noted(2)),  # written with every step
    (step(5), *saved(1), step(5), *noted(2, "/elsewhere/progress.txt")),
    (step(5), *noted(1), *saved(1), step(5)),
    (step(5), *saved(1, thread=""), step(5), *noted(2)),  # waited for: a note of what the training has come to
])  # fmt: skip
def test_notes_that_may_be_right(records):
    assert of(*records) == []


def test_a_thread_that_writes_later():
    """The save was asked for when its thread was started."""
    started = ev.Started, {"kind": "thread", "name": "Thread-1 (save)", "pid": None, "site": 8}
    forms = Forms()
    late = forms.saved(10, "/job/step-1.pt", weight("a", 1, 2), thread="Thread-1 (save)")
    assert of(step(5), started, step(5), *late, *noted(2)) == ["2"]
