"""Who presses Ctrl-C again leaves at once, and sees no traceback."""

from __future__ import annotations

import signal
import time

import pytest

from ddpcheck.run import command, options
from ddpcheck.run.conclusion import Run


class Ended:
    """A run that is over, in the place of one that is watched."""

    sender = collector = None

    def __init__(self, hurried):
        self._hurried = hurried

    def __call__(self, options, folder):
        self.folder = folder
        return self

    def run(self):
        return Run(pid=1, exit_code=None, signal=2, hurried=self._hurried)

    def gather(self, seconds):
        self.patience = seconds


@pytest.fixture
def left(monkeypatch, tmp_path, capsys):
    """What becomes of the command if making the report is this."""
    (tmp_path / "train.py").write_text("")
    before = signal.getsignal(signal.SIGALRM)

    def leave(hurried, report):
        ended = Ended(hurried)
        monkeypatch.setattr(command, "Supervisor", ended)
        monkeypatch.setattr(command, "_verdict", lambda *args: report())
        code = command.run(options.parse(["--nproc-per-node", "2", str(tmp_path / "train.py")]))
        return code, capsys.readouterr().err, ended.patience

    yield leave
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_while_the_report_is_made(left):
    code, told, patience = left(False, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert (code, told.split()) == (130, ["ddpcheck:", "left", "without", "a", "report"])
    assert patience == command.OTHER_NODES


def test_a_second_time_no_report_is_waited_for(left, monkeypatch):
    monkeypatch.setattr(command, "HURRIED", 0.2)
    began = time.monotonic()
    code, told, patience = left(True, lambda: time.sleep(60))
    assert (code, told.split()) == (130, ["ddpcheck:", "left", "without", "a", "report"])
    assert time.monotonic() - began < 30
    assert patience == 0.0
