"""Signals that a process sends, on record before they are sent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.processes import sent_signals
from ddpcheck.probes.recording import recorder

PROGRAM = """
import os, pathlib, signal, sys
from ddpcheck.probes.processes import sent_signals
from ddpcheck.probes.recording import recorder
sent_signals.watch()
recorder.begin(pathlib.Path(sys.argv[1]), 1 << 20)
signal.signal(signal.SIGUSR1, lambda *_: None)
os.kill(os.getpid(), 0)
os.kill(os.getpid(), signal.SIGUSR1)
{end}
"""


@pytest.mark.parametrize(
    ("end", "number"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL),
        ("os.abort()", signal.SIGABRT),
        ("signal.raise_signal(signal.SIGTERM)", signal.SIGTERM),
    ],
)
def test_a_signal_is_on_record_though_its_sender_dies_of_it(tmp_path, end, number):
    """With whom it goes to, and its line. A question whether there is a process is none, nor one that is handled."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(end=end))
    (tmp_path / "evidence").mkdir()
    ended = subprocess.run([sys.executable, script, tmp_path / "evidence"], cwd=tmp_path, env={**os.environ})
    assert ended.returncode == -number
    folder = Folder(tmp_path / "evidence")
    folder.read()
    (process,) = folder.processes.values()
    sent = process.of(ev.SentSignal)
    assert [one.signal for one in sent] == [number]
    assert process.where(sent[-1].site).line == 10


@pytest.fixture
def sent(monkeypatch):
    """What is on record of the signals that the test sends."""
    monkeypatch.setattr(os, "kill", sent_signals._around_kill(os.kill))
    before, writer = recorder.leave(), recorder.InMemory()
    recorder.use(writer)
    yield lambda: [record for record in writer.kept if isinstance(record, ev.SentSignal)]
    recorder.use(before)


class Number:
    """What numbers of other libraries are to Python."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


@pytest.mark.parametrize("given", [(None, 15), (3.5, 15), (1 << 40, 15), (os.getpid(),), (), (os.getpid(), "x")])
def test_what_is_no_process_or_no_signal(sent, given):
    """The program has the error that it would have had, and nothing is on record."""
    with pytest.raises((TypeError, OverflowError)) as ours:
        os.kill(*given)
    with pytest.raises((TypeError, OverflowError)) as without:
        ORIGINAL(*given)
    assert str(ours.value) == str(without.value)
    assert sent() == []


ORIGINAL = os.kill


def test_numbers_of_other_kinds(sent):
    with pytest.raises((ProcessLookupError, TypeError)):
        os.kill(Number((1 << 22) + 5), signal.SIGUSR1)
    assert all(type(one.pid) is int for one in sent())


def test_values_of_the_program_s_own_are_not_compared(sent, monkeypatch):
    """Whoever sends a signal may be called with anything, whose comparison is its own code."""
    monkeypatch.setattr(os, "kill", sent_signals._around_kill(lambda *given: None))

    class Own:
        def __eq__(self, other):
            raise AssertionError("compared")

        __hash__ = None

    def step(model, batch):
        os.kill(os.getpid(), signal.SIGTERM)

    step(Own(), Own())
    step(Own(), sys._getframe())
    assert len(sent()) == 2


def test_a_handler_that_sends_the_signal_once_more(sent, monkeypatch):
    """It came from elsewhere: the textbook's way to end by a signal after having cleaned up."""
    monkeypatch.setattr(os, "kill", sent_signals._around_kill(lambda *given: None))

    def bye(number, frame):
        os.kill(os.getpid(), number)

    bye(signal.SIGTERM, sys._getframe())
    assert sent() == []
    os.kill(os.getpid(), signal.SIGTERM)
    assert len(sent()) == 1
