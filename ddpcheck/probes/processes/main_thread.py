"""Where the main thread is, looked at four times a second by a thread of our own: what a hang is read from."""

from __future__ import annotations

import os
import threading
from _thread import start_new_thread
from collections.abc import Callable
from itertools import count
from time import sleep  # by name: a test may replace that of the module
from types import CodeType

from ddpcheck.evidence import Pulse
from ddpcheck.probes.devices import queued_calls
from ddpcheck.probes.processes.awaited_function import awaited
from ddpcheck.probes.processes.standing_thread import Standing
from ddpcheck.probes.recording import call_frames, recorder, user_lines
from ddpcheck.probes.recording.patching import defect
from ddpcheck.vocabulary.clock import clock

PERIOD = 0.25
"""Seconds between two looks."""

SIGN = 4
"""Every so many looks, a sign of life: who gives none has no thread that gets the GIL, or was stopped.

A main thread that has moved within its line is told of as often: it is in no single call that waits."""

_pending: tuple[int, float] | None = None
_owner = 0
_also: list[Callable[[], None]] = []


def waiting(number: int) -> None:
    """The main thread is about to wait in the call with this record's number."""
    global _pending
    _pending = (number, clock.now())


def went_on() -> None:
    """The call has returned."""
    global _pending
    _pending = None


def also(task: Callable[[], None]) -> None:
    """Do this at every look as well; it must be quick and must not raise."""
    _also.append(task)


def begin() -> None:
    """Begin to tell, in this process."""
    global _owner
    if _owner != os.getpid():
        _owner = os.getpid()
        # No threading.Thread: these are the program's to count, to trace and to profile.
        start_new_thread(_look_again_and_again, ())


def _here(before: tuple[int, int], looks: int, standing: Standing) -> tuple[int, str, tuple[int, int], str]:
    """The line of the user's that the main thread is at, the function that it is in, and its instruction there.

    And the function that it stands in, if that is one that waits for a device: where it was at the instruction
    ``before`` for some looks already, and calls were queued on one.
    Nothing of its stack is held by this thread, neither while it rests nor in the midst of a look.
    """
    lines = call_frames.lines_of(threading.main_thread().ident or 0)
    doing = next((code.co_name for code, _, _ in lines if not call_frames.is_own(code)), "")
    site = user_lines.among(lines)
    if not lines:
        return site, doing, _NOWHERE, ""
    code, _, instruction = lines[0]
    now_at = id(code), instruction
    function = ""
    if now_at == before and looks >= SIGN and queued_calls.are_on_default_stream() and not _repeats(code):
        function = awaited(code, instruction)
    if not function:
        standing.moved()
    return site, doing, now_at, function if function and standing.look() else ""


_NOWHERE = (0, -1)


def _repeats(code: CodeType) -> bool:
    """Whether the code is a comprehension's, or a generator's: it passes an instruction many times."""
    return code.co_name.startswith("<") and code.co_name not in ("<module>", "<lambda>")


def _look_again_and_again() -> None:
    told: tuple[object, ...] | None = None
    told_at, instruction, since_look, moved = 0, _NOWHERE, 0, False
    standing = Standing()
    for look in count():
        sleep(PERIOD)
        writer = recorder.always()
        if writer is None or not writer.open:
            return
        if look % SIGN == 0:
            writer.sign()
        pending = _pending
        # A call is only told of once it has lasted: a rank at work passes many between two looks.
        number = pending[0] if pending is not None and clock.now() - pending[1] > PERIOD else None
        site, doing, awaits = 0, "", ""
        call, since = queued_calls.oldest()
        try:
            for task in _also:
                task()
            site, doing, now_at, awaits = _here(instruction, look - since_look, standing)
            if now_at != instruction:
                moved, instruction, since_look = True, now_at, look
        except Exception as error:
            defect(error)
        here = (site, doing, number, call, since is None, awaits)
        if here != told or (moved and number is None and look - told_at >= SIGN):
            told, told_at, moved = here, look, False
            writer.write(
                Pulse(
                    **writer.next(),
                    site=site,
                    doing=doing,
                    pending=number,
                    since=pending[1] if pending is not None and number is not None else None,
                    device=call,
                    device_since=since,
                    awaits=awaits,
                )
            )
