"""Ranks that do not end, behind what they do together: nobody waits for them in a call."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable

import psutil

from ddpcheck import evidence as ev
from ddpcheck.judging.deadlock import has_left
from ddpcheck.judging.device_waits import computes, waits_for_what_is_not_known
from ddpcheck.judging.world import Process
from ddpcheck.run.process_activity import Activity
from ddpcheck.vocabulary.wording import ranks_text


def unended_ranks(
    processes: Iterable[Process],
    family: Callable[[], Iterable[psutil.Process]],
    activity: Activity,
    last: Callable[[Process], float],
    patience: float,
) -> str:
    """Why a run goes on for nothing in which a rank has come to its end; empty where it does something.

    By the processes of this node: what those of others read and write cannot
    be seen here. ``last`` says when a process got on last, as far as is known.
    """
    host, now = socket.gethostname(), time.monotonic()
    here = [p for p in processes if p.began is not None and p.began.host == host]
    if not any(map(has_left, here)):
        return ""
    activity.look(family, now)
    alive = [p for p in here if p.pid in activity.living]
    ranks = sorted(joined.rank for p in alive if (joined := p.last(ev.Joined)) is not None)
    still = now - max(activity.last, *map(last, here))
    if not ranks or still <= patience:
        return ""
    if any(p.incomplete or is_in_a_call(p) or computes(p) for p in alive):
        return ""  # it may go on out of sight, or others wait for it as well
    return f"{ranks_text(ranks)} did not end, and did nothing for {still:.0f} seconds (--stall-timeout)"


def is_in_a_call(process: Process) -> bool:
    """Whether a process waits in a call, or for a device that may be in one, by its last word."""
    pulse = process.last(ev.Pulse)
    waits = pulse is not None and pulse.pending is not None and process.records[-1].n <= pulse.n
    return waits or waits_for_what_is_not_known(process)
