"""Signals that a process sends by itself: on record before they are sent, for the sender may not outlive them."""

from __future__ import annotations

import os
import signal
from typing import Any

from ddpcheck.evidence import SentSignal
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.patching import around

MOST = 100
"""Signals that are told of in one process."""

_told = 0


def watch() -> None:
    """Record every signal from now on, with its line."""
    around(os, "kill", _around_kill)
    around(os, "abort", _around_abort)
    around(signal, "raise_signal", _around_raise)


def _note(pid: int, number: int) -> None:
    global _told
    writer = recorder.current()
    if writer is not None and number and _told < MOST:  # 0 asks whether there is a process
        _told += 1
        writer.write(SentSignal(**writer.next(), pid=pid, signal=int(number), site=user_lines.here()))


def _around_kill(original: Any) -> Any:
    def kill(pid: int, sig: int, /) -> Any:
        _note(pid, sig)
        return original(pid, sig)

    return kill


def _around_abort(original: Any) -> Any:
    def abort() -> Any:
        _note(os.getpid(), signal.SIGABRT)
        return original()

    return abort


def _around_raise(original: Any) -> Any:
    def raise_signal(signalnum: int, /) -> Any:
        _note(os.getpid(), signalnum)
        return original(signalnum)

    return raise_signal
