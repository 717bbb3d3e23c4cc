"""What looks cost is added up, and written down once, when the process ends."""

from __future__ import annotations

import sys

import pytest

from ddpcheck.evidence import LookCosts
from ddpcheck.probes.recording import look_costs, recorder
from tests import progress


@pytest.fixture
def kept():
    writer = recorder.InMemory()
    recorder.use(writer)
    look_costs._spent.clear()
    yield writer.kept
    recorder.use(None)
    look_costs._spent.clear()


def test_looks_are_added_up(kept):
    """What nobody has measured stays unknown, and a measured 0 is one."""
    look_costs.add(looks=1, kernels=30, bytes=4096, host_waits=0)
    look_costs.add(looks=1, kernels=12, device_milliseconds=0.25)
    look_costs.write_down()
    look_costs.write_down()
    (told,) = kept
    assert isinstance(told, LookCosts)
    assert (told.looks, told.kernels, told.bytes, told.host_waits) == (2, 42, 4096, 0)
    assert told.device_milliseconds == 0.25
    assert told.host_milliseconds is None
    assert told.captures is None


def test_what_a_device_takes_is_added_once_it_is_known(kept):
    """Nobody waits for that."""
    first = [None, None, 0.002]
    look_costs.add_later(lambda: first.pop(0))
    look_costs.add_later(lambda: 0.001)
    assert look_costs._spent == {}
    look_costs.write_down()
    (told,) = kept
    assert told.device_milliseconds == 3.0


def test_without_looks_nothing_is_said(kept):
    """A program on the CPU has no such costs."""
    look_costs.write_down()
    assert kept == []


def test_a_fork_has_not_spent_what_its_parent_has():
    """The workers of a loader would tell it once more."""
    code = """
import os
from ddpcheck.probes.recording import look_costs
look_costs.add(looks=1)
if os.fork() == 0:
    os._exit(len(look_costs._spent))
_, status = os.wait()
raise SystemExit(status != 0 or look_costs._spent != {"looks": 1})
"""
    assert progress.run([sys.executable, "-c", code]).returncode == 0
