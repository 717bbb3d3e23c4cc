"""What belongs to a device is never destroyed in a process that was forked from the one that has made it."""

from __future__ import annotations

import sys

import pytest
import torch

from ddpcheck.probes.devices import device_events
from ddpcheck.probes.devices.device_time import DeviceTime
from tests import progress

PREPARED = """
import os, sys
from collections import deque
import pytest, torch
from ddpcheck.probes import all_probes
from ddpcheck.probes.devices import device_events, device_numbers, queued_calls
from ddpcheck.probes.devices.device_objects import Held, forever
from ddpcheck.probes.devices.device_time import DeviceTime
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import look_costs, recorder
from tests.probes.devices import fake_cuda

here = os.getpid()
told, telling = os.pipe()

class Telling:
    def __del__(self, write=os.write, getpid=os.getpid):
        if getpid() != here:
            write(telling, b"x")

class Event(fake_cuda.FakeEvent, Telling):
    pass

class Tensor(torch.Tensor, Telling):
    device = torch.device("cuda", 0)

def numbers():
    return torch.zeros(2).as_subclass(Tensor)

fake_cuda.FakeEvent = Event
cuda = fake_cuda.install(pytest.MonkeyPatch())
recorder.use(recorder.InMemory())
all_probes.patch()
"""

ENDED = """
os.close(telling)
_, status = os.waitpid(child, 0)
destroyed = os.read(told, 100)
raise SystemExit(f"status {status}, {len(destroyed)} destroyed" if status or destroyed else 0)
"""


def run(code: str) -> None:
    done = progress.run([sys.executable, "-c", PREPARED + code + ENDED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_is_destroyed_in_a_fork():
    """Neither by what runs after the fork nor when its interpreter ends, in each place where such things are kept."""
    run("""
kept = device_events.record()
device_events.record().release()
queued_calls.begin(1, 0).end()
time = DeviceTime(torch.device("cuda", 0))
time.end()
look_costs.add_later(time.seconds)
coming = device_numbers.Fetched(numbers())
later_records.write(recorder.current(), print, each=coming)
kept_numbers = Held([numbers()])
kept_for_good = forever(numbers())
child = os.fork()
if not child:
    assert coming.is_there() and coming.told() is None, "it cannot ask the device"
    sys.exit(0)
""")


def test_nothing_is_destroyed_by_what_runs_after_a_fork():
    """Wherever the probes might keep it."""
    run("""
for name, module in list(sys.modules.items()):
    for kept in list(vars(module).values()) if name.startswith("ddpcheck.probes") else ():
        for its in (kept, *(getattr(kept, '__dict__', {}).values() if type(kept).__module__ == name else ())):
            one = Held(Telling())
            if isinstance(its, dict):
                its[object()] = one
            elif isinstance(its, (list, deque)):
                its.append(one)
            elif isinstance(its, set):
                its.add(one)
child = os.fork()
if not child:
    os._exit(0)
""")


def test_it_would_be_noticed():
    """What is kept in no such way is destroyed."""
    with pytest.raises(AssertionError, match="status 0, 1 destroyed"):
        run("""
look_costs._open.append(Event(cuda).query)
child = os.fork()
if not child:
    sys.exit(0)
""")


def test_an_event_that_nobody_refers_to_is_used_again(cuda):
    """It is made no second time."""
    for _ in range(3):
        device_events.record()
    assert len(cuda.made) == 1


def test_the_time_between_two_events(cuda):
    """They are asked for once the device has passed them, and used again."""
    time = DeviceTime(torch.device("cuda", 0))
    time.end()
    assert time.seconds() is None
    cuda.finish()
    assert time.seconds() == 0.002
    DeviceTime(torch.device("cuda", 0)).end()
    assert len(cuda.made) == 2
