"""The thread that tells where the main thread is: none of the program's."""

from __future__ import annotations

import itertools
import sys
import threading
import time

import pytest
import torch

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.devices import queued_calls
from ddpcheck.probes.processes import main_thread
from ddpcheck.probes.recording import call_frames, recorder
from ddpcheck.vocabulary.clock import clock

DEADLINE = 20.0


def test_it_is_none_of_the_programs_threads(tmp_path, monkeypatch) -> None:
    """Whoever counts, profiles or traces threads sees none of ours; and it rests, whatever becomes of time.sleep."""
    seen, rested = [], threading.Event()
    monkeypatch.setattr(main_thread, "PERIOD", 0.01)
    monkeypatch.setattr(main_thread, "_owner", 0)
    threads = threading.enumerate()
    recorder.begin(tmp_path, 1 << 20)
    threading.setprofile(lambda frame, *_: seen.append(frame.f_code.co_name))
    threading.settrace(lambda frame, *_: seen.append(frame.f_code.co_name))
    try:
        with monkeypatch.context() as program:
            program.setattr(time, "sleep", lambda seconds: seen.append("sleep"))
            program.setattr(time, "monotonic", None)
            main_thread.begin()
            folder = Folder(tmp_path)
            for _ in range(int(DEADLINE / 0.05)):
                folder.read()
                (process,) = folder.processes.values()
                if process.of(ev.Pulse):
                    break
                rested.wait(0.05)
        assert process.of(ev.Pulse)
        assert threading.enumerate() == threads
        assert seen == []
    finally:
        threading.setprofile(None)
        threading.settrace(None)
        recorder.stop()


def test_a_main_thread_that_moves_within_its_line_is_told_of(tmp_path, monkeypatch) -> None:
    """It computes; one that is in one call all the time may as well wait by spinning."""
    monkeypatch.setattr(main_thread, "PERIOD", 0.01)
    monkeypatch.setattr(main_thread, "_owner", 0)
    recorder.begin(tmp_path, 1 << 20)
    folder = Folder(tmp_path)
    try:
        main_thread.begin()
        computes, waits = (0, 0)
        end = time.monotonic() + DEADLINE
        while computes < 4 and time.monotonic() < end:
            until = time.monotonic() + 0.3
            any(time.monotonic() > until for _ in itertools.count())
            threading.Event().wait(0.3)
            folder.read()
            (process,) = folder.processes.values()
            computes, waits = ([p.doing for p in process.of(ev.Pulse)].count(name) for name in ("<genexpr>", "wait"))
        assert computes >= 4
        assert waits < computes, "once each time"
    finally:
        recorder.stop()


def test_nothing_of_the_programs_is_held_while_it_rests(tmp_path, monkeypatch) -> None:
    """What a function leaves behind goes when it returns, and in the thread that ran it."""
    died: list[bool] = []

    class Resource:
        def __del__(self) -> None:
            died.append(threading.current_thread() is threading.main_thread())

    def work() -> None:
        resource = Resource()
        threading.Event().wait(0.2)
        assert resource

    monkeypatch.setattr(main_thread, "PERIOD", 0.05)
    monkeypatch.setattr(main_thread, "_owner", 0)
    recorder.begin(tmp_path, 1 << 20)
    try:
        main_thread.begin()
        for times in range(1, 6):
            work()
            assert died == [True] * times
    finally:
        recorder.stop()


def test_lines_of_a_stack() -> None:
    """Innermost first; of a thread that is not there, none; and no reference to a frame is left."""

    def inner() -> list[tuple[str, int]]:
        return [(code.co_name, line) for code, line, _ in call_frames.lines_of(threading.get_ident())]

    before = sys.getrefcount(sys._getframe())
    found = inner()
    assert [name for name, _ in found[1:3]] == ["inner", "test_lines_of_a_stack"]
    assert found[2][1] == sys._getframe().f_lineno - 2
    after = sys.getrefcount(sys._getframe())
    assert after == before
    assert call_frames.lines_of(0) == []


def test_the_call_that_the_device_is_in_is_told_with_what_the_host_waits_in(tmp_path, monkeypatch) -> None:
    """A main thread that stands in a function which waits for a device is told of so; one that sleeps is not."""
    monkeypatch.setattr(main_thread, "PERIOD", 0.01)
    monkeypatch.setattr(main_thread, "_owner", 0)
    monkeypatch.setattr(queued_calls, "oldest", lambda: (7, 3.5))
    monkeypatch.setattr(queued_calls, "are_on_default_stream", lambda: True)
    recorder.begin(tmp_path, 1 << 20)
    lock = threading.Lock()
    lock.acquire()

    class Loss:
        item = lock.acquire

    try:
        main_thread.begin()
        Loss.item(True, 1.0)
        time.sleep(1.0)
        folder = Folder(tmp_path)
        folder.read()
        (process,) = folder.processes.values()
    finally:
        recorder.stop()
    told = process.of(ev.Pulse)
    assert {(pulse.device, pulse.device_since) for pulse in told} == {(7, 3.5)}
    lines = {process.line(pulse.site): pulse.awaits for pulse in told}
    assert lines["Loss.item(True, 1.0)"] == ("item" if hasattr(time, "pthread_getcpuclockid") else "")
    assert lines["time.sleep(1.0)"] == ""


@pytest.mark.parametrize(
    "numbers", [torch.arange(1000), list(torch.arange(100_000))], ids=["made on the way", "that are there"]
)
def test_a_main_thread_that_computes_waits_for_no_device(tmp_path, monkeypatch, numbers) -> None:
    """It is met at one instruction all the time, since it gives the GIL up there, however far it comes."""
    monkeypatch.setattr(main_thread, "PERIOD", 0.01)
    monkeypatch.setattr(main_thread, "_owner", 0)
    monkeypatch.setattr(queued_calls, "oldest", lambda: (7, 3.5))
    monkeypatch.setattr(queued_calls, "are_on_default_stream", lambda: True)
    recorder.begin(tmp_path, 1 << 20)
    try:
        main_thread.begin()
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            for number in numbers:
                number.item()
        folder = Folder(tmp_path)
        folder.read()
        (process,) = folder.processes.values()
    finally:
        recorder.stop()
    told = process.of(ev.Pulse)
    # On a busy machine a single look may err; what counts has to be so for seconds, in every look.
    longest = max((after.at - one.at for one, after in itertools.pairwise(told) if one.awaits), default=0.0)
    assert told
    assert longest < 1.0
    assert not (told[-1].awaits and clock.now() - told[-1].at > 1.0)
