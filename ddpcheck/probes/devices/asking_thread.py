"""The thread that asks devices how far they have come, four times a second.

It is none of those that tell of the process: the driver may keep who asks waiting while the queue of a device is full.
"""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections.abc import Callable
from time import sleep  # by name: a test may replace that of the module

from ddpcheck.probes.recording import out_of_sight, recorder
from ddpcheck.probes.recording.patching import defect

PERIOD = 0.25
"""Seconds between two questions."""

Task = Callable[[recorder.Recorder], None]

_tasks: list[Task] = []
_owner = 0
"""The process in which the thread runs."""


def begin(task: Task) -> None:
    """Have this done from now on; asked for each time that there is something to ask, it costs next to nothing."""
    global _owner
    if task not in _tasks:
        _tasks.append(task)
    if _owner != os.getpid():
        _owner = os.getpid()
        # No threading.Thread: these are the program's to count, to trace and to profile.
        start_new_thread(_ask_again_and_again, ())


def _ask_again_and_again() -> None:
    global _owner
    out_of_sight.hide(out_of_sight.Outside())
    while True:
        sleep(PERIOD)
        writer = recorder.always()
        if writer is None or not writer.open:
            _owner = 0
            return
        for task in _tasks:
            try:
                task(writer)
            except Exception as error:
                defect(error)
