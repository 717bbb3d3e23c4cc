"""Processes that compute while others wait for them: what is taken for it, and that they are not ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Process
from ddpcheck.run import computing_processes
from ddpcheck.run.computing_processes import Computing

HOST = socket.gethostname()
BUSY = "while True: len(str(1))"
FOR_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
ASLEEP = "import os, time\nwhile not os.path.exists('never'): time.sleep(0.05)"


def process(pid, *records, backend="gloo", host=HOST, joined=True):
    """A rank, or what is not one yet."""
    made = Process(f"{host}-{pid}")
    began = ev.Began(n=1, at=1.0, pid=pid, parent=0, host=host, node=0, argv=["train.py"], folder="/", wall=0.0)
    join = ev.Joined(
        n=2, at=2.0, rank=0, world_size=2, token="t", backend=backend, local_rank=0, site=0, timeout=None
    )  # fmt: skip
    made.add([began, *([join] if joined else []), *records])
    return made


def pulse(at, pending=None):
    return ev.Pulse(n=9, at=at, site=1, doing="f", pending=pending)


@pytest.fixture
def using(monkeypatch):
    """Half a core is used by every process that is looked at, from look to look: when that was told of each."""
    monkeypatch.setattr(computing_processes, "OFTEN", 0.0)

    def look(*processes, share=0.5, told=None):
        monkeypatch.setattr(computing_processes, "_used", lambda pid, others: ((pid, 0.0), share * clock[0]))
        looks = Computing(0.0, told)
        for clock[0] in (100.0, 110.0):
            looks.look(processes, clock[0])
        return [looks.last(one) for one in processes]

    clock = [0.0]
    return look


def test_what_uses_a_core_computes(using):
    """At the same line all the time, or without any pulse: native code may keep the GIL."""
    assert using(process(7), process(8, pulse(3.0))) == [110.0, 110.0]


def test_what_uses_little_waits(using):
    """It asks now and then for what it waits for."""
    assert using(process(7), share=0.1) == [0.0]


def test_a_rank_in_a_collective_does_not_compute(using):
    """Whatever its other threads do; where the call is over, it is not in it any more."""
    step = ev.File(n=10, at=4.0, op="write", how="", path="p", target="", site=1, existed=False, thread="", ended=0)
    beside = ev.File(n=10, at=4.0, op="write", how="", path="p", target="", site=1, existed=False, thread="t", ended=0)
    ranks = process(7, pulse(3.0, 5)), process(8, pulse(3.0, 5), step), process(9, pulse(3.0, 5), beside)
    assert using(*ranks) == [0.0, 110.0, 0.0]


@pytest.mark.parametrize(("op", "at"), [("ddp-construct", 110.0), ("broadcast", 0.0)])
def test_a_rank_in_a_wrappers_constructor_may_compute(using, op, at):
    """It imports much before it communicates, and takes a core for it; one that waits for its peers there does not."""
    call = ev.Call(n=5, at=2.5, op=op, group="world", number=0, detail="", site=1)
    assert using(process(7, call, pulse(3.0, 5))) == [at]
    assert using(process(7, call, pulse(3.0, 5)), share=0.1) == [0.0]


def test_a_rank_that_waits_for_a_device_spins(using):
    """Only one whose main thread is seen to move computes there."""
    ranks = process(7, pulse(3.0), backend="nccl"), process(8, pulse(105.0), backend="cpu:gloo,cuda:nccl")
    assert using(*ranks) == [0.0, 110.0]


def test_what_others_have_told(using):
    """A process of another host cannot be looked at here: its own node tells of it, as this one does of its own."""
    theirs, told = process(7, host="elsewhere"), []
    messenger = process(1, ev.Computed(n=3, at=55.0, pid=7), host="elsewhere")
    assert using(theirs, messenger) == [55.0, 0.0]
    using(process(8), told=lambda pid, at: told.append((pid, at)))
    assert told == [(8, 110.0)]


@pytest.mark.parametrize(("code", "busy"), [(BUSY, True), (FOR_A_CHILD, True), (ASLEEP, False)])
@pytest.mark.few(1)
def test_processes_as_they_are(monkeypatch, code, busy):
    """One that loops, one that waits for a program that does, and one that sleeps most of the time."""
    monkeypatch.setattr(computing_processes, "OFTEN", 0.0)
    code = f"print(flush=True)\n{code}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as started:
        try:
            started.stdout.readline()
            rank, looks = process(started.pid, joined=False), Computing(0.0)
            end = time.monotonic() + (20.0 if busy else 1.0)
            while time.monotonic() < end and not looks.last(rank):
                looks.look([rank], time.monotonic())
                time.sleep(0.4)
            assert bool(looks.last(rank)) == busy
        finally:
            os.killpg(started.pid, 9)


def test_a_rank_that_another_has_started_is_not_counted_as_its_own():
    """It computes by itself; the one that has started it sleeps."""
    code = FOR_A_CHILD.replace("subprocess.run", "print(subprocess.Popen") + ".pid, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as started:
        try:
            child = int(started.stdout.readline())
            (_, before), (_, child_before) = (
                computing_processes._used(pid, {started.pid, child}) for pid in (started.pid, child)
            )
            while computing_processes._used(child, {child})[1] < child_before + 0.3:
                time.sleep(0.05)
            assert computing_processes._used(started.pid, {started.pid, child})[1] < before + 0.2
            assert computing_processes._used(started.pid, {started.pid})[1] >= before + 0.3
        finally:
            os.killpg(started.pid, 9)
