"""Records that are written once a device has computed what is in them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from ddpcheck.evidence import Defect, Overlooked, Synced
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import patching, recorder, unwatchable_moments
from tests.probes.devices.test_awaited import Coming


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[recorder.InMemory]:
    monkeypatch.setattr(unwatchable_moments, "_noted", set())
    monkeypatch.setattr(patching, "_told", set())
    kept = recorder.InMemory()
    recorder.use(kept)
    yield kept
    recorder.use(None)
    later_records._waiting.clear()


def write(writer: recorder.InMemory, digests: Any) -> None:
    made = partial(Synced, **writer.next(), wrapper=0, moment="step", number=0, site=0)
    later_records.write(writer, made, digests=digests)


def written(writer: recorder.InMemory) -> list[bytes]:
    return [record.digests for record in writer.kept if isinstance(record, Synced)]


def test_what_no_device_computes_is_written_at_once(writer: recorder.InMemory) -> None:
    """As it always was."""
    write(writer, b"1")
    assert written(writer) == [b"1"]


def test_records_are_written_in_their_order(writer: recorder.InMemory) -> None:
    """One that is ready waits for those before it, and has the number and the time of its own moment."""
    first, second = Coming(b"1"), Coming(b"2")
    for one in (first, second, b"3"):
        write(writer, one)
    second.arrived = True
    later_records.look()
    assert written(writer) == []
    first.arrived = True
    later_records.look()
    assert written(writer) == [b"1", b"2", b"3"]
    assert [record.n for record in writer.kept] == [1, 2, 3]
    assert [record.at for record in writer.kept] == sorted(record.at for record in writer.kept)


def test_the_next_record_brings_those_before_it(writer: recorder.InMemory) -> None:
    """The program need not wait for anybody's look."""
    first = Coming(b"1")
    write(writer, first)
    first.arrived = True
    write(writer, b"2")
    assert written(writer) == [b"1", b"2"]


def test_one_that_another_thread_is_writing_is_before_those_that_come(writer: recorder.InMemory) -> None:
    """It waits no more, and is not written yet: nothing goes before it, and the end waits for it as well."""
    first, begun, goes_on = Coming(b"1"), threading.Event(), threading.Event()
    write(writer, first)
    first.told = lambda: (begun.set(), goes_on.wait(60), b"1")[-1]  # type: ignore[method-assign,func-returns-value]
    first.arrived = True
    other = threading.Thread(target=later_records.look)
    other.start()
    assert begun.wait(60)
    write(writer, b"2")
    assert written(writer) == []
    later_records._waiting.clear()
    ends = threading.Thread(target=later_records.finish, args=(60.0,))
    ends.start()
    ends.join(0.05)
    assert ends.is_alive()
    write(writer, b"3")
    goes_on.set()
    other.join()
    ends.join()
    assert written(writer) == [b"1", b"3"]


def test_the_programs_clock_is_not_asked(writer: recorder.InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test may have stopped it: who waited by that would wait for ever."""
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("the program's sleep was called"))
    write(writer, Coming(b"1"))
    later_records.finish(0.05)
    assert written(writer) == [b"unseen"]


def test_at_the_end_they_are_waited_for(writer: recorder.InMemory) -> None:
    """One that arrives in time is written."""
    first = Coming(b"1")
    write(writer, first)
    arrives = threading.Timer(0.05, lambda: setattr(first, "arrived", True))
    arrives.start()
    later_records.finish(10.0)
    arrives.join()
    assert written(writer) == [b"1"]
    assert not any(isinstance(record, Overlooked) for record in writer.kept)


def test_a_device_that_is_stuck_is_not_waited_for_long(writer: recorder.InMemory) -> None:
    """What it owes is told as not seen; the rest of the record is there."""
    write(writer, Coming(b"1"))
    later_records.finish(0.05)
    assert [record.what for record in writer.kept if isinstance(record, Overlooked)] == ["device"]
    write(writer, b"2")
    assert written(writer) == [b"unseen", b"2"]


def test_a_record_that_cannot_be_made_costs_only_itself(writer: recorder.InMemory) -> None:
    """It is a defect of ours, and the rest goes on."""
    broken = Coming(b"1")
    broken.told = lambda: 1 / 0  # type: ignore[method-assign]
    write(writer, broken)
    write(writer, b"2")
    broken.arrived = True
    later_records.look()
    assert written(writer) == [b"2"]
    assert any(isinstance(record, Defect) and "ZeroDivisionError" in record.text for record in writer.kept)


def test_a_process_that_was_forked_writes_only_its_own(writer: recorder.InMemory) -> None:
    """What waits there is its parent's, whose device it cannot ask."""
    asked = Coming(b"1")
    write(writer, asked)
    reader, end = os.pipe()
    pid = os.fork()
    if not pid:
        asked.is_there = lambda: os._exit(3)  # type: ignore[method-assign,assignment,return-value]
        later_records.look()
        later_records.finish(0.01)
        asked.arrived = True
        write(writer, Coming(b"2"))
        os.write(end, str(len(later_records._waiting)).encode())
        os._exit(0)
    os.close(end)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert os.read(reader, 9) == b"1"
    os.close(reader)
