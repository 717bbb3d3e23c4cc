"""Threads and processes that a rank starts: where, and which of them still run when its script is over."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Literal

import psutil

from ddpcheck.evidence import NO_SITE, Lingering, Started
from ddpcheck.probes.files import paths
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.patching import around

MOST = 500
"""Starts that are told of in one process."""

_TOOLS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "compile_worker")

_told = 0


def watch() -> None:
    """Record every start from now on, and what is left when the script is over."""
    # Before the interpreter waits for threads, and before multiprocessing waits for processes.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(note_left)
    around(multiprocessing.process.BaseProcess, "run", _around_run)
    around(threading.Thread, "start", _around_thread)
    around(multiprocessing.process.BaseProcess, "start", _around_process)
    around(subprocess.Popen, "__init__", _around_popen)


def _note(kind: Literal["thread", "process"], name: str, pid: int | None) -> int:
    """Write a start down; the line that it comes from."""
    global _told
    writer = recorder.current()
    site, library = paths.users_line_through()
    if writer is not None and site != NO_SITE and _told < MOST:
        _told += 1
        writer.write(Started(**writer.next(), kind=kind, name=name[:80], pid=pid, site=site, library=library))
    return site


def _is_daemon(thread: Any) -> bool:
    try:
        return bool(thread.daemon)
    except Exception as error:  # its constructor was not called, and it is refused in a moment
        signal_exceptions.let_through(error)
        return True


def _around_thread(original: Any) -> Any:
    def start(self: Any) -> Any:
        if recorder.current() is not None and not _is_daemon(self):
            self._ddpcheck_started_at = _note("thread", self.name, None)
        return original(self)

    return start


def _around_process(original: Any) -> Any:
    def start(self: Any) -> Any:
        result = original(self)
        if not self.daemon:
            _note("process", str(self.name), self.pid)
        return result

    return start


def _around_popen(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _note("process", _line(args[0] if args else kwargs.get("args")), self.pid)

    return __init__


def _line(command: Any) -> str:
    """A command as one line: a text, a path, or some of these; empty for what Popen has used up by going through it."""
    if isinstance(command, (str, bytes, os.PathLike)):
        return os.fsdecode(command)
    parts = command if isinstance(command, Sequence) else ()
    return " ".join(os.fsdecode(one) if isinstance(one, (str, bytes, os.PathLike)) else str(one) for one in parts)


# --- what is left


def _around_run(original: Any) -> Any:
    def run(self: Any) -> Any:
        result = original(self)
        note_left()
        return result

    return run


def note_left() -> None:
    """Write down which threads and processes are still there."""
    writer = recorder.current()
    if writer is not None:
        threads = [
            t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread() and t.is_alive()
        ]
        children = _children()
        writer.write(Lingering(**writer.next(), threads=threads, children=children or [], blind=children is None))


def _children() -> list[str] | None:
    """The processes that this one has started, but for those that end with it: daemons, and Python's own.

    None where they cannot be seen.
    """
    process = sys.modules["multiprocessing.process"]
    daemons = {child.pid for child in list(getattr(process, "_children", ())) if child.daemon}
    found = []
    try:
        for child in psutil.Process().children():
            if child.pid in daemons or child.status() == psutil.STATUS_ZOMBIE:
                continue
            line = " ".join(child.cmdline())
            if not any(tool in line for tool in _TOOLS):
                found.append(f"{child.pid}: {line[:120]}")
    except (psutil.Error, OSError, RuntimeError) as error:
        signal_exceptions.let_through(error)
        return None
    return found
