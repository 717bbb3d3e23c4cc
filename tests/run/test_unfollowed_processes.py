"""Processes that use torch and record nothing: named with the reason, where there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ddpcheck.probes import startup
from ddpcheck.probes.follow_program import FOLDER
from ddpcheck.run import unfollowed_processes
from ddpcheck.run.unfollowed_processes import Unfollowed, reason

FOLLOWED = {FOLDER: "/tmp/x", "PYTHONPATH": f"{Path(startup.__file__).parent}{os.pathsep}/other"}


@pytest.mark.parametrize(
    ("command", "environment", "words"),
    [
        (["python", "-I", "train.py"], FOLLOWED, "-I, which leaves out PYTHONPATH"),
        (["/usr/bin/python3.11", "-uE", "train.py"], FOLLOWED, "-E, which leaves out PYTHONPATH"),
        (["python", "-X", "dev", "-S", "train.py"], FOLLOWED, "-S, which leaves out site"),
        (["python", "train.py"], {"PATH": "/bin"}, "an environment of its own"),
        (["python", "train.py"], {**FOLLOWED, "PYTHONPATH": "/other"}, "a PYTHONPATH of its own"),
    ],
)
def test_there_is_a_reason(command, environment, words):
    """It says what to change."""
    assert words in reason(command, environment)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "-I"],
        ["python", "-u", "-W", "I", "train.py"],
        ["python", "-WI", "-c", "print()", "-E"],
        ["python", "-mIES", "-I"],
        ["train", "-I"],
        [],
    ],
)
def test_there_is_none(command):
    """Arguments of the script, and values of flags, are none."""
    assert reason(command, FOLLOWED) == ""
    assert reason(command, {}) == "", "it cannot be seen"


def started(*flags):
    """An interpreter that waits."""
    return subprocess.Popen(
        [sys.executable, *flags, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **FOLLOWED, FOLDER: ""},
    )


def test_processes_are_looked_at_from_outside(monkeypatch):
    """Those that use torch, and of which there is no evidence."""
    with started("-I") as isolated, started() as usual:
        for one in (isolated, usual):
            assert one.stdout is not None
            one.stdout.readline()
        family = [psutil.Process(isolated.pid), psutil.Process(usual.pid)]
        unfollowed = Unfollowed()
        unfollowed.look(family, set())
        assert unfollowed.notes(set()) == [], "none of them uses torch"
        monkeypatch.setattr(unfollowed_processes, "_uses_torch", lambda pid: True)
        unfollowed.look(family, set())
        (note,) = unfollowed.notes(set())
        assert note.startswith(f"1 process used torch and could not be followed: {isolated.pid} (")
        assert unfollowed.notes({isolated.pid}) == [], "its evidence has come in the meantime"
        for one in (isolated, usual):
            one.communicate(b"\n")
    unfollowed.look(family, set())  # they have ended


def test_looks_become_rare():
    """A run of days is not searched all the time."""
    unfollowed = Unfollowed()
    looks = [at for at in range(1000) if unfollowed.is_due(float(at))]
    assert looks[:5] == [2, 6, 14, 30, 62]
    assert looks[-1] - looks[-2] == 60
