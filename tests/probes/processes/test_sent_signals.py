"""Signals that a process sends, on record before they are sent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder

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
    """With whom it goes to, and its line; the question whether there is a process is none."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(end=end))
    (tmp_path / "evidence").mkdir()
    ended = subprocess.run([sys.executable, script, tmp_path / "evidence"], cwd=tmp_path, env={**os.environ})
    assert ended.returncode == -number
    folder = Folder(tmp_path / "evidence")
    folder.read()
    (process,) = folder.processes.values()
    sent = process.of(ev.SentSignal)
    assert [one.signal for one in sent] == [signal.SIGUSR1, number]
    assert len({one.pid for one in sent}) == 1
    assert process.where(sent[-1].site).line == 10
