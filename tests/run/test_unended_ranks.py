"""Ranks that do not end: what is told of them, over records of processes that live."""

from __future__ import annotations

import os
import socket
import time

import psutil
import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Process
from ddpcheck.run.process_activity import Activity
from ddpcheck.run.unended_ranks import unended_ranks

JOINED = {"rank": 0, "world_size": 2, "token": "t", "backend": "gloo", "local_rank": 0, "site": 0}
BEGAN = {"parent": 1, "host": socket.gethostname(), "node": 0, "argv": [], "folder": "/", "wall": 0.0}
LEFT, OVER = (ev.Left, {"site": 0}), (ev.Lingering, {"threads": [], "children": []})
WAITS = (ev.Pulse, {"site": 0, "doing": "wait", "pending": 2})
COMPUTES = (ev.Pulse, {"site": 0, "doing": "item", "pending": None, "awaits": "item"})
ENDED = (ev.Ended, {"how": "exit", "code": None, "site": 0, "groups": 0})
JOINS = (ev.Joining, {"rank": 0, "world_size": 2, "site": 0})
NOBODY = 999_999_999


def told(folder, first, second=(), seconds=100.0, since=float("-inf"), incomplete=False):
    """What is said where rank 0 lives and rank 1 does not, with what each has recorded so many seconds ago."""
    processes = []
    for rank, (pid, said) in enumerate(((os.getpid(), first), (NOBODY, second))):
        process = Process(f"p{rank}")
        records = ((ev.Began, {"pid": pid, **BEGAN}), (ev.Joined, {**JOINED, "rank": rank}), *said)
        process.add(kind(n=n, at=0.0, **fields) for n, (kind, fields) in enumerate(records, 1))
        process.torn = incomplete
        processes.append(process)
    activity = Activity(folder, 300.0)
    activity.last = since
    at = time.monotonic() - seconds
    return unended_ranks(processes, lambda: [psutil.Process()], activity, lambda process: at, 30.0)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([LEFT], [LEFT, OVER, ENDED]),
        ([OVER], []),
        ([], [LEFT, OVER, ENDED]),
        ([OVER, ENDED], [LEFT, OVER, ENDED]),
    ],
    ids=["behind its group", "behind its script", "in its script, and another has ended", "behind its last word"],
)
def test_a_rank_that_does_not_end(tmp_path, first, second):
    """It has done nothing for as long as it may, while a rank has come to its end."""
    assert told(tmp_path, first, second) == "rank 0 did not end, and did nothing for 100 seconds (--stall-timeout)"


@pytest.mark.parametrize(
    ("first", "second"),
    [([], []), ([LEFT, JOINS], []), ([WAITS], [LEFT, OVER, ENDED]), ([COMPUTES], [LEFT, OVER, ENDED])],
    ids=["no rank has come to its end", "it joins another group", "it waits for the others", "its device computes"],
)
def test_a_rank_that_may_go_on(tmp_path, first, second):
    """Who waits for others is told of elsewhere."""
    assert told(tmp_path, first, second) == ""


def test_a_rank_that_has_done_something(tmp_path):
    """It has recorded or computed something, or has read or written a byte, not so long ago; or that is not known."""
    assert told(tmp_path, [LEFT, OVER], seconds=20.0) == ""
    assert told(tmp_path, [LEFT, OVER], since=time.monotonic() - 20) == ""
    assert "for 40 seconds" in told(tmp_path, [LEFT, OVER], since=time.monotonic() - 40)
    assert told(tmp_path, [LEFT, OVER], incomplete=True) == ""


def test_a_run_whose_ranks_have_all_ended(tmp_path):
    """What started them may still have something to do."""
    assert told(tmp_path, [LEFT, OVER, ENDED], seconds=100.0) != ""
    process = Process("p")
    process.add([ev.Began(n=1, at=0.0, pid=NOBODY, **BEGAN), ev.Joined(n=2, at=0.0, **JOINED)])
    process.add([ev.Ended(n=3, at=0.0, how="exit", code=None, site=0, groups=0)])
    own = [psutil.Process()]
    assert unended_ranks([process], lambda: own, Activity(tmp_path, 300.0), lambda process: 0.0, 30.0) == ""
