"""Signals that a process sends by itself: on record before they are sent, for the sender may not outlive them."""

from __future__ import annotations

import operator
import os
import signal
import sys
from types import FrameType
from typing import Any

from ddpcheck.evidence import SentSignal
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.patching import around

MOST = 100
"""Signals that are told of in one process."""

_told = 0


def watch() -> None:
    """Record every signal from now on, with its line."""
    around(os, "kill", _around_kill)
    around(os, "abort", _around_abort)
    around(signal, "raise_signal", _around_raise)


def _note(*given: Any) -> None:
    """Record it, if these are a process and a signal that would end it; what they are else is the original's affair."""
    global _told
    writer = recorder.current()
    if writer is None or len(given) != 2 or _told >= MOST:
        return
    try:
        pid, number = (operator.index(one) for one in given)
    except Exception as error:  # neither is a number, and whatever an object of the program's own raises
        signal_exceptions.let_through(error)
        return
    if not 0 < number < signal.NSIG or not -1 << 31 <= pid < 1 << 31:  # 0 asks whether there is a process
        return
    if pid == os.getpid() and (_is_handled(number) or _is_passed_on(number)):
        return
    _told += 1
    writer.write(SentSignal(**writer.next(), pid=pid, signal=number, site=user_lines.here()))


def _is_handled(number: int) -> bool:
    """Whether this process goes on when it has the signal."""
    try:
        return callable(signal.getsignal(number)) or signal.getsignal(number) is signal.SIG_IGN
    except ValueError:
        return False


def _is_passed_on(number: int) -> bool:
    """Whether a handler is at work on this very signal, which has come from elsewhere, and sends it once more."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_argcount >= 2:
            values = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]][-2:]
            # Kinds first: to compare a value of the program's own would run its code, and may wait for a device.
            if isinstance(values[1], FrameType) and isinstance(values[0], int) and values[0] == number:
                return True
        frame = frame.f_back
    return False


def _around_kill(original: Any) -> Any:
    def kill(*given: Any) -> Any:
        _note(*given)
        return original(*given)

    return kill


def _around_abort(original: Any) -> Any:
    def abort() -> Any:
        _note(os.getpid(), signal.SIGABRT)
        return original()

    return abort


def _around_raise(original: Any) -> Any:
    def raise_signal(*given: Any) -> Any:
        _note(os.getpid(), *given)
        return original(*given)

    return raise_signal
