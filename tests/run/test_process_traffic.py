"""What the processes of a run read and write, evidence aside."""

from __future__ import annotations

import os

import psutil
import pytest

from ddpcheck.run import process_traffic
from ddpcheck.run.process_traffic import Traffic

NEVER = float("-inf")


@pytest.fixture
def told(monkeypatch, tmp_path):
    """When there was traffic, by the bytes and the evidence that one process has written at each look."""

    def look(*looks):
        traffic = Traffic(tmp_path, 300.0)
        monkeypatch.setattr(process_traffic, "_bytes", lambda process: looks[place][0])
        found = []
        for place, (_, recorded) in enumerate(looks):
            (tmp_path / "host-7-1.evidence").write_bytes(b"r" * recorded)
            traffic.look(lambda: [psutil.Process()], 100.0 + 10.0 * place)
            found.append(traffic.last)
        return found

    return look


def test_what_was_before_the_first_look_is_not_known(told):
    """It is told by what a process has recorded."""
    assert told((5000, 0), (5000, 0), (5000, 0)) == [NEVER, NEVER, NEVER]


def test_each_byte_counts(told):
    """A line of output is enough."""
    assert told((5000, 0), (5001, 0), (5001, 0), (9000, 0)) == [NEVER, 110.0, 110.0, 130.0]


def test_evidence_is_none(told):
    """A process that waits in a loop records where it is."""
    assert told((5000, 100), (5150, 250), (5200, 300), (5300, 350)) == [NEVER, NEVER, NEVER, 130.0]


def test_a_process_that_comes_or_goes_counts(tmp_path):
    """Looks are apart, however often they are asked for; who lives was seen at the last one."""
    traffic = Traffic(tmp_path, 300.0)
    parent, own = psutil.Process(os.getppid()), psutil.Process()
    for now, family, last in ((100.0, [parent], NEVER), (105.0, [], NEVER), (110.0, [parent, own], 110.0)):
        traffic.look(lambda family=family: family, now)
        assert traffic.last == last
    assert traffic.living == {parent.pid, own.pid}
    traffic.look(lambda: [own], 120.0)
    assert traffic.last == 120.0


@pytest.mark.skipif(not hasattr(psutil.Process, "io_counters"), reason="this system does not count it")
def test_a_process_as_it_is(tmp_path):
    """What this one writes is counted."""
    before = process_traffic._bytes(psutil.Process())
    with (tmp_path / "log").open("wb", buffering=0) as log:
        log.write(b"x" * 100_000)
    assert process_traffic._bytes(psutil.Process()) - before >= 100_000
