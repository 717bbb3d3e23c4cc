"""Where a rank starts threads and processes of its own: the lines to point at when one of them is left over."""

from __future__ import annotations

import multiprocessing.process
import subprocess
import threading
from typing import Any, Literal

from ddpcheck.evidence import NO_SITE, Started
from ddpcheck.observe import paths, recorder, sites
from ddpcheck.observe.patching import around

MOST = 500
"""Starts that are told of in one process."""

_told = 0


def watch() -> None:
    """Record every start from now on."""
    around(threading.Thread, "start", _around_thread)
    around(multiprocessing.process.BaseProcess, "start", _around_process)
    around(subprocess.Popen, "__init__", _around_popen)


def _note(kind: Literal["thread", "process"], name: str, pid: int | None, site: int) -> None:
    global _told
    writer = recorder.current()
    if writer is not None and site != NO_SITE and _told < MOST:
        _told += 1
        writer.write(Started(**writer.next(), kind=kind, name=name[:80], pid=pid, site=site))


def _around_thread(original: Any) -> Any:
    def start(self: Any) -> Any:
        if recorder.current() is not None and not self.daemon:
            self._ddpcheck_started_at = site = paths.users_line()
            _note("thread", self.name, None, site)
        return original(self)

    return start


def _around_process(original: Any) -> Any:
    def start(self: Any) -> Any:
        result = original(self)
        _note("process", self.name, self.pid, paths.users_line())
        return result

    return start


def _around_popen(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        name = args[0] if args else kwargs.get("args", "")
        _note("process", name if isinstance(name, str) else str(list(name))[:80], self.pid, sites.here())

    return __init__
