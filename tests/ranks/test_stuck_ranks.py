"""Ranks that can never go on, told from those that only take their time."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time

import pytest

from ddpcheck.ranks import stuck_ranks
from ddpcheck.ranks.stuck_ranks import EVERY, LOOKS, Look, Stillness, look, waits_in_torch
from tests.inner import wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the deadline decides")
STILL = Look(main=1000, others=500, asleep=True)


def suspected(monkeypatch, looks):
    """Whether these looks at the one rank, one after the other, make it suspect."""
    seen = iter(looks)
    monkeypatch.setattr(stuck_ranks, "look", lambda pid: next(seen))
    watch = Stillness()
    watch.begin(0.0)
    return [watch.suspect(EVERY * number + 1e-9, {0: 1}) for number in range(1, len(looks) + 1)]


def test_nothing_moves(monkeypatch):
    """Several looks in a row are needed, after the first."""
    assert suspected(monkeypatch, [STILL] * (LOOKS + 1)) == [False] * LOOKS + [True]


@pytest.mark.parametrize(
    "moved",
    [
        STILL._replace(main=1001),
        STILL._replace(others=500 + 10**8),
        STILL._replace(asleep=False),
    ],
)
def test_something_moves(monkeypatch, moved):
    """A main thread that has run, work in the background, or a thread that only waits for a core is a movement."""
    looks = [STILL, STILL, STILL, moved, moved, moved, moved]
    assert not any(suspected(monkeypatch, looks))


def test_the_background_may_tick(monkeypatch):
    looks = [STILL._replace(others=500 + number * 100_000) for number in range(LOOKS + 1)]
    assert suspected(monkeypatch, looks)[-1]


def test_a_process_that_cannot_be_looked_at(monkeypatch):
    """Then the deadline decides."""
    assert not any(suspected(monkeypatch, [None, STILL, STILL, STILL, STILL, STILL, STILL, STILL]))


def test_looks_have_their_time():
    watch = Stillness()
    assert watch.due == float("inf")
    watch.begin(10.0)
    assert watch.due == 10.0 + EVERY
    watch.end()
    assert watch.due == float("inf")


@linux
def test_real_processes():
    """A process that sleeps comes to a rest and stays there; one that computes, in whatever thread, never does."""
    context = multiprocessing.get_context("spawn")
    sleeps, works = (context.Process(target=target) for target in (_sleeps, _works))
    for worker in (sleeps, works):
        worker.start()
    try:
        assert wait_until(lambda: _rests(sleeps.pid))
        assert _rests(sleeps.pid)
        assert wait_until(lambda: (seen := look(works.pid)) is not None and seen.others > 10**8)
        assert not _rests(works.pid)
    finally:
        for worker in (sleeps, works):
            worker.kill()
            worker.join()
    assert look(2**22 + os.getpid()) is None


def _rests(pid):
    """Whether nothing moves between two looks."""
    before = look(pid)
    time.sleep(0.2)
    after = look(pid)
    return before is not None and after is not None and not stuck_ranks._moved(before, after)


def _sleeps():
    time.sleep(1000)


def _works():
    def work():
        while True:
            sum(range(1000))

    threading.Thread(target=work, daemon=True).start()
    time.sleep(1000)


HEADER = "Current thread 0x00007f0000000000 (most recent call first):"


def frame(file, line):
    return f'  File "{file}", line {line} in f'


def test_what_a_rank_waits_in(tmp_path):
    """In torch, or in the wait() of what torch has given; not in what else may sleep, nor beside another thread."""
    torch = os.path.join(os.sep, "site", "torch", "distributed", "distributed_c10d.py")
    own = tmp_path / "test_x.py"
    own.write_text("work.wait()\ntime.sleep(3)\n")
    test = frame("/project/test_x.py", 9)
    assert waits_in_torch(f"{HEADER}\n{frame(torch, 12)}\n{test}")
    assert waits_in_torch(f"{HEADER}\n{frame(own, 1)}\n{test}")
    assert not waits_in_torch(f"{HEADER}\n{frame(own, 2)}\n{test}")
    assert not waits_in_torch(f"{HEADER}\n{frame('/lib/threading.py', 2)}\n{test}")
    assert not waits_in_torch(f"Thread 0x00007f0000000001:\n{frame(own, 1)}\n{HEADER}\n{frame(torch, 12)}")
    assert not waits_in_torch("")
