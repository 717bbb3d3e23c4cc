"""What the processes of a run compute, read and write, evidence aside."""

from __future__ import annotations

import os

import psutil
import pytest

from ddpcheck.run import process_activity
from ddpcheck.run.process_activity import Activity

NEVER = float("-inf")


@pytest.fixture
def told(monkeypatch, tmp_path):
    """When there was activity, by the bytes and the evidence that one process has written at each look, ten seconds
    apart, and by its processor time.
    """

    def look(*looks, seconds=(0.0, 0.0, 0.0, 0.0)):
        activity = Activity(tmp_path, 300.0)
        monkeypatch.setattr(process_activity, "_bytes", lambda process: looks[place][0])
        monkeypatch.setattr(process_activity, "seconds_of", lambda process: seconds[place])
        found = []
        for place, (_, recorded) in enumerate(looks):
            (tmp_path / "host-7-1.evidence").write_bytes(b"r" * recorded)
            activity.look(lambda: [psutil.Process()], 100.0 + 10.0 * place)
            found.append(activity.last)
        return found

    return look


def test_what_was_before_the_first_look_is_not_known(told):
    """It is told by what a process has recorded."""
    assert told((5000, 0), (5000, 0), (5000, 0)) == [NEVER, NEVER, NEVER]


def test_each_byte_counts(told):
    """A line of output is enough."""
    assert told((5000, 0), (5001, 0), (5001, 0), (9000, 0)) == [NEVER, 110.0, 110.0, 130.0]


def test_a_core_counts(told):
    """A fifth of it: who asks now and then for what he waits for takes less."""
    looks = [(5000, 0)] * 4
    assert told(*looks, seconds=(50.0, 51.9, 53.9, 55.0)) == [NEVER, NEVER, 120.0, 120.0]


def test_evidence_is_none(told):
    """A process that waits in a loop records where it is."""
    assert told((5000, 100), (5150, 250), (5200, 300), (5300, 350)) == [NEVER, NEVER, NEVER, 130.0]


def test_a_process_that_comes_or_goes_counts(tmp_path):
    """Looks are apart, however often they are asked for; who lives was seen at the last one."""
    activity = Activity(tmp_path, 300.0)
    parent, own = psutil.Process(os.getppid()), psutil.Process()
    for now, family, last in ((100.0, [parent], NEVER), (105.0, [], NEVER), (110.0, [parent, own], 110.0)):
        activity.look(lambda family=family: family, now)
        assert activity.last == last
    assert activity.living == {parent.pid, own.pid}
    activity.look(lambda: [own], 120.0)
    assert activity.last == 120.0


@pytest.mark.skipif(not hasattr(psutil.Process, "io_counters"), reason="this system does not count it")
def test_a_process_as_it_is(tmp_path):
    """What this one writes is counted."""
    before = process_activity._bytes(psutil.Process())
    with (tmp_path / "log").open("wb", buffering=0) as log:
        log.write(b"x" * 100_000)
    assert process_activity._bytes(psutil.Process()) - before >= 100_000
