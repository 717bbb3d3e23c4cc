"""The thread that tells where the main thread is: none of the program's."""

from __future__ import annotations

import itertools
import threading
import time

from ddpcheck import evidence as ev
from ddpcheck.observe import pulses, recorder
from ddpcheck.run.folder import Folder

DEADLINE = 20.0


def test_it_is_none_of_the_programs_threads(tmp_path, monkeypatch) -> None:
    """Whoever counts, profiles or traces threads sees none of ours; and it rests, whatever becomes of time.sleep."""
    seen, rested = [], threading.Event()
    monkeypatch.setattr(pulses, "PERIOD", 0.01)
    monkeypatch.setattr(pulses, "_owner", 0)
    threads = threading.enumerate()
    recorder.begin(tmp_path, 1 << 20)
    threading.setprofile(lambda frame, *_: seen.append(frame.f_code.co_name))
    threading.settrace(lambda frame, *_: seen.append(frame.f_code.co_name))
    try:
        with monkeypatch.context() as program:
            program.setattr(time, "sleep", lambda seconds: seen.append("sleep"))
            program.setattr(time, "monotonic", None)
            pulses.begin()
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
    monkeypatch.setattr(pulses, "PERIOD", 0.01)
    monkeypatch.setattr(pulses, "_owner", 0)
    recorder.begin(tmp_path, 1 << 20)
    folder = Folder(tmp_path)
    try:
        pulses.begin()
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
