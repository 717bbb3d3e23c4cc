"""Threads that stand in a call of C, and those that come to it again and again: told by their processor time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import torch

from ddpcheck.probes.processes import standing_thread
from ddpcheck.probes.processes.standing_thread import Standing

pytestmark = pytest.mark.skipif(
    not hasattr(time, "pthread_getcpuclockid"), reason="the processor time of another thread cannot be told"
)


DEADLINE = 30.0


def _looked_at(program: Callable[[list[bool]], object]) -> list[bool]:
    """What is seen of the main thread while it runs a program, which is given what has been seen so far."""
    standing, over = Standing(), threading.Event()
    seen: list[bool] = []

    def look() -> None:
        while not over.wait(0.1):
            seen.append(standing.look())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        program(seen)
        return list(seen)
    finally:
        over.set()
        thread.join()


def _sleeps(_: list[bool]) -> None:
    time.sleep(1.0)


def _spins(seen: list[bool]) -> None:
    """Calls of C that work without the GIL, each for long. On a busy machine they may have no core at a look."""
    end = time.monotonic() + DEADLINE
    while (len(seen) < 5 or not any(seen)) and time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 500_000)


def test_a_call_that_waits_is_stood_in() -> None:
    """Asleep, or by spinning; the first look has none before it."""
    first, *asleep = _looked_at(_sleeps)
    assert (first, set(asleep)) == (False, {True})
    first, *spinning = _looked_at(_spins)
    assert not first
    assert any(spinning)


def test_a_loop_is_not() -> None:
    """Neither one that gives up the GIL at each pass, nor one that keeps it."""
    numbers = list(torch.arange(1000))

    def gives_up(_: list[bool]) -> None:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            for number in numbers:
                number.item()

    def keeps(_: list[bool]) -> None:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass

    assert not any(_looked_at(gives_up))
    assert not any(_looked_at(keeps))


def test_what_has_moved_is_looked_at_anew() -> None:
    standing = Standing()
    standing.look()
    standing.moved()
    assert not standing.look()


def test_where_others_get_the_gil_at_once_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a thread works then says nothing of where."""
    monkeypatch.setattr(sys, "getswitchinterval", lambda: 0.0001)
    assert not any(_looked_at(lambda _: hashlib.pbkdf2_hmac("sha256", b"", b"", 500_000)))


def test_where_its_time_cannot_be_told_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_thread, "_clock_of", None)
    assert not any(_looked_at(_sleeps))


@pytest.mark.parametrize("asked", [0.0, 10.0])
def test_a_loop_that_gets_no_core_is_not(asked: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no processor time, either, but asks for it."""
    waited = [0.0]
    monkeypatch.setattr(standing_thread, "_spins", lambda: False)
    monkeypatch.setattr(standing_thread, "_used", lambda: 1.0)
    monkeypatch.setattr(standing_thread, "_kept_waiting", lambda: waited[0])
    standing = Standing()
    standing.look()
    time.sleep(0.1)
    waited[0] += asked
    assert standing.look() is (not asked)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be put on one core")
def test_the_time_without_a_core_is_counted() -> None:
    """As long as others work on the one core that this thread may use."""
    if not os.path.exists("/proc/self/schedstat"):
        pytest.skip("this system does not say for how long a thread was ready")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        before, began = standing_thread._kept_waiting(), time.monotonic()
        while standing_thread._kept_waiting() - before < 0.2:
            assert time.monotonic() - began < DEADLINE
    finally:
        os.sched_setaffinity(0, cores)
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize(("still", "spins"), [(1, False), (2, True)])
def test_one_measurement_of_work_proves_nothing(still: int, spins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still while the thread has the core counts that as its work."""
    # Each try takes the time before and after; in so many of them it goes on by a second.
    times = iter([float(min(taken, still)) for n in range(100) for taken in (n, n + 1)])
    monkeypatch.setattr(standing_thread, "_used", lambda: next(times))
    assert standing_thread._spins() is spins
