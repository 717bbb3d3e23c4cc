"""Threads that write files beside the main one, and when the main one has waited for them."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from typing import Any

from ddpcheck.evidence import File
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.call_frames import caller
from ddpcheck.probes.recording.patching import around

EVERY = "*"
"""Some thread has been waited for: which one is not known, so that all may have been."""

_busy: set[str] = set()
"""Threads that have done something with files since they were last waited for."""


def watch() -> None:
    """Record from now on when the main thread has waited for one that was at work on files."""
    around(threading.Thread, "join", _around_join)
    around(threading.Event, "wait", _around_wait)
    around(queue.Queue, "join", _around_any)
    around(queue.Queue, "get", _around_get)
    around(concurrent.futures.Future, "result", _around_any)
    around(concurrent.futures.Future, "exception", _around_any)
    waited = around(concurrent.futures._base, "wait", _around_any)
    if waited:
        concurrent.futures.wait = concurrent.futures._base.wait


def name() -> str:
    """The thread at work; empty for the main one."""
    number = threading.get_ident()
    if number == threading.main_thread().ident:
        return ""
    known = getattr(threading, "_active", {}).get(number)
    return str(known.name) if known is not None else f"thread {number}"


def is_foreign() -> bool:
    """Whether the thread at work was not started by Python: it is one of torch's."""
    known = getattr(threading, "_active", {}).get(threading.get_ident())
    return known is None or isinstance(known, getattr(threading, "_DummyThread", ()))


def line() -> int:
    """The line of the user's at work; of a thread that has none of its own, the one that has started it."""
    number = user_lines.here()
    frame = user_lines.users_frame()
    if frame is not None and not user_lines.is_users(frame.f_code):
        return getattr(threading.current_thread(), "_ddpcheck_started_at", number) or number
    return number


def has_done(thread: str) -> None:
    """A thread has done something with a file."""
    _busy.add(thread)


def _waited_for(thread: str) -> None:
    """The main thread goes on after having waited for a thread, or for any."""
    writer = recorder.current()
    if writer is None or name():
        return
    if thread == EVERY:
        _busy.clear()
    else:
        _busy.discard(thread)
    begun: dict[str, Any] = {**writer.next(), "how": "", "path": "", "target": "", "existed": False}
    writer.write(File(**begun, op="join", site=user_lines.here(), ended=begun["n"], thread=thread))


def _around_join(original: Any) -> Any:
    def join(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if _busy and self.name in _busy and not self.is_alive():
            _waited_for(self.name)
        return result

    return join


def _around_wait(original: Any) -> Any:
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        # To start a thread is to wait until it runs, and not for what it does.
        if _busy and result and caller().f_code.co_filename != threading.__file__:
            _waited_for(EVERY)
        return result

    return wait


def _around_any(original: Any) -> Any:
    def waiting(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if _busy:
            _waited_for(EVERY)
        return result

    return waiting


def _around_get(original: Any) -> Any:
    def get(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        # A script's own queue may carry a word that a file is there; a loader's carries samples.
        if _busy and user_lines.is_users(caller().f_code):
            _waited_for(EVERY)
        return result

    return get
