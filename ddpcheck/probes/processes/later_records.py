"""Records that hold what a device is still computing: written down once it is there, in their order.

Nobody waits for a device. What has arrived is written when the next record of
this kind comes, and four times a second by the thread that looks at the main
one, so that a process which is killed, or hangs, has said nearly all that it
knew. At the end of the process what is missing is waited for, and not for long.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from time import sleep  # by name: a test may replace that of the module
from typing import Any, NamedTuple

from ddpcheck.evidence import Record
from ddpcheck.probes.devices import asking_thread
from ddpcheck.probes.devices.awaited import give_up, is_there, told
from ddpcheck.probes.processes import endings
from ddpcheck.probes.recording import look_costs, recorder
from ddpcheck.probes.recording.patching import defect
from ddpcheck.probes.recording.unwatchable_moments import overlooked
from ddpcheck.vocabulary.clock import clock

PATIENCE = 2.0
"""Seconds that a device gets, at the end of the process."""

PAUSE = 0.001


class _Later(NamedTuple):
    writer: recorder.Recorder
    make: Callable[..., Record | None]
    awaited: dict[str, Any]

    def write(self) -> None:
        record = self.make(**told(self.awaited))
        if record is not None:
            self.writer.write(record)


_waiting: deque[_Later] = deque()
_lock = threading.Lock()


def _forget() -> None:
    """What waits in a process that was forked is its parent's, and so is the lock that a thread of it may hold."""
    global _lock
    _lock = threading.Lock()
    _waiting.clear()


os.register_at_fork(after_in_child=_forget)


def watch() -> None:
    """Write down at the end what has not arrived by then."""
    endings.before_end(finish)
    endings.before_end(look_costs.write_down)  # what the devices have taken is known by then


def write(writer: recorder.Recorder, make: Callable[..., Record | None], **awaited: Any) -> None:
    """Write down the record that ``make`` makes of these values, if any, once all of them are there."""
    later = _Later(writer, make, awaited)
    if not _is_anything_left() and all(map(is_there, awaited.values())):
        later.write()
        return
    _waiting.append(later)
    asking_thread.begin(look)
    look()


def _is_anything_left() -> bool:
    """Whether a record waits, or is being written by another thread."""
    return bool(_waiting) or _lock.locked()


def look(_: recorder.Recorder | None = None) -> None:
    """Write down what has arrived."""
    if _waiting and _lock.acquire(blocking=False):
        try:
            while _waiting and is_there(_waiting[0].awaited):
                later = _waiting.popleft()
                try:
                    later.write()
                except Exception as error:
                    defect(error)
        finally:
            _lock.release()


def finish(patience: float = PATIENCE) -> None:
    """Wait for what has not arrived, for so many seconds; what is not there then is on record as not seen."""
    end = clock.now() + patience
    look()
    while _is_anything_left():
        if clock.now() > end:
            overlooked("device")
            if _lock.acquire(timeout=PATIENCE):
                for later in _waiting:
                    give_up(later.awaited)
                _lock.release()
            look()
            return
        sleep(PAUSE)
        look()
