"""Times of forwards, backwards and the like: in rows, within their room, and none of another process."""

from __future__ import annotations

import os

import pytest

from ddpcheck.evidence import FIELDS, HEADER, OVER, Reader, Spans
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.processes import span_log
from ddpcheck.probes.recording import recorder


@pytest.fixture
def log(monkeypatch):
    """The log, on and empty."""
    monkeypatch.setattr(span_log, "_log", span_log._Log())
    span_log._log.on = True
    return span_log._log


def written(folder):
    """The rows in the file of a folder, from which judges take up none."""
    (file,) = folder.glob("*.evidence")
    return [one for one in Reader().feed(file.read_bytes()[len(HEADER) + 1 :]) if isinstance(one, Spans)]


@pytest.fixture
def rows(tmp_path):
    """Records into a folder, and gives the rows that are in it."""
    recorder.begin(tmp_path, 1 << 22)

    yield lambda: written(tmp_path)
    recorder.stop()


def test_spans_are_written_in_rows(log, rows):
    """As microseconds since the first of a row, with line and number."""
    span_log.add(span_log.FORWARD, 5.0, 5.25, 3)
    span_log.add(span_log.STEP, 5.5, 5.500010, 7, 12)
    assert rows() == []
    span_log.write()
    (row,) = rows()
    assert row.base == 5.0
    assert row.packed == [span_log.FORWARD, 0, 250_000, 3, 0, span_log.STEP, 500_000, 10, 7, 12]
    span_log.write()
    assert len(rows()) == 1


def test_a_row_ends_with_a_window_of_steps(log, rows):
    """So that what is lost with a process that is killed is little."""
    for step in range(2 * span_log.WINDOW):
        span_log.add(span_log.STEP, float(step), step + 0.5, 1, step)
    assert [len(row.packed) // FIELDS for row in rows()] == [span_log.WINDOW] * 2


def test_very_many_between_two_steps_are_counted_only(log, rows):
    """A program may call a module a thousand times for one step: the next step's are kept again."""
    for n in range(200):
        span_log.add(span_log.FORWARD, float(n), n + 0.5)
    span_log.add(span_log.STEP, 200.0, 200.5)
    span_log.add(span_log.FORWARD, 201.0, 201.5)
    span_log.write()
    (row,) = rows()
    assert len(row.packed) // FIELDS == span_log.BETWEEN_STEPS + 2
    assert row.left_out == 200 - span_log.BETWEEN_STEPS


@pytest.mark.parametrize("steps", [True, False])
def test_a_run_without_end_stays_within_its_room(log, tmp_path, steps):
    """Whole windows are left out, ever more of them; the file is never said to be incomplete for it."""
    writer = recorder.begin(tmp_path, 1 << 22)
    for n in range(60_000):
        span_log.add(span_log.STEP if steps else span_log.CALL, float(n), n + 0.5, 1, n)
    recorder.stop()
    assert writer.path.stat().st_size < (1 << 22) * Spans.share + 1000
    folder = Folder(tmp_path)
    folder.read()
    (process,) = folder.processes.values()
    assert process.gap == ""
    assert writer.path.read_bytes()[: len(recorder.HEADER) + 1].endswith(OVER)
    last = written(tmp_path)[-1].packed[-1]
    assert not steps or last > 40_000


def test_nothing_is_kept_where_nobody_asked(rows):
    """In a rank of a test the probes note no times."""
    if not span_log._log.on:
        span_log.add(span_log.STEP, 1.0, 2.0)
        assert span_log._log.spans == []


def test_a_fork_begins_anew(log, rows):
    """What the parent has not written yet is the parent's."""
    span_log.add(span_log.STEP, 1.0, 2.0)
    span_log._begin_again()
    span_log.write()
    assert rows() == []
    assert os.getpid()


def test_assertions_need_no_times(log):
    """Their records are kept in memory, where there is no room to waste."""
    recorder.use(recorder.InMemory())
    try:
        span_log.add(span_log.STEP, 1.0, 2.0)
        span_log.write()
        assert recorder.always().kept == []
    finally:
        recorder.use(None)
