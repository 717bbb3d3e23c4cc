"""Who is left when the ranks have gone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import psutil
import pytest

from ddpcheck.ranks.process_ties import Family
from tests import progress


@pytest.fixture
def started() -> Iterator[list[psutil.Popen]]:
    """A process that is about to end, and one that stays."""
    processes = [psutil.Popen(["true"]), psutil.Popen(["sleep", "600"])]
    yield processes
    for process in processes:
        if process.is_running():
            process.kill()
        process.wait()


def seen_in_turn(monkeypatch: pytest.MonkeyPatch, *looks: list[psutil.Popen]) -> None:
    """Let the family look like this, one look after the other, and be empty then."""
    left = list(looks)
    monkeypatch.setattr(Family, "strangers", lambda self: left.pop(0) if left else [])


def test_a_process_that_ends_is_no_orphan(monkeypatch, started):
    """A helper on its way out is waited for, and not named."""
    seen_in_turn(monkeypatch, started[:1])
    assert Family().orphans() == []


def test_a_process_that_stays_is_one(monkeypatch, started):
    """Among several, those that stay are named."""
    seen_in_turn(monkeypatch, started)
    assert Family().orphans(patience=0.2) == started[1:]


def test_one_that_was_started_on_the_way_out_is_found(monkeypatch, started):
    """A process that forks and ends between two looks does not hide its child."""
    seen_in_turn(monkeypatch, started[:1], started[1:])
    assert Family().orphans(patience=0.2) == started[1:]


HIDDEN = """
import json, psutil, signal, subprocess, sys
from ddpcheck.ranks import huge_pages as hugepages, process_ties as processes
psutil.PROCFS_PATH = sys.argv[1]
left = [subprocess.Popen(["sleep", "600"], start_new_session=own) for own in (True, False)]
family = processes.Family(frozenset())
found = [processes.children(), family.strangers(), processes.sweep("nobody"), processes.describe(left[0])]
family.end_strangers(groups=[left[0].pid])
ended = [one.poll() is not None for one in left]
left[1].kill()
left[1].wait()
print(json.dumps([found[:3], ended, processes.is_childless()]))
"""


def test_where_proc_is_hidden(tmp_path):
    """Nobody is seen, which is no error; who stayed in a rank's group ends with it; the dead are buried."""
    code = [sys.executable, "-c", HIDDEN, str(tmp_path)]
    run = progress.run(code, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [[[], [], []], [True, False], True]


FAMILY = """
import os, subprocess, sys, time
from ddpcheck.ranks import process_ties as processes
processes.adopt_orphans()
if os.fork() == 0:
    subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
    os._exit(0)
os.wait()
seen = len(processes.children())
processes.kill_descendants()
print(seen, processes.is_childless())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
def test_orphans_are_found_by_their_parent():
    """A process that left its session and has an empty environment is a descendant all the same."""
    run = progress.run([sys.executable, "-c", FAMILY], text=True)
    assert run.stdout.split() == ["1", "True"], run.stderr
