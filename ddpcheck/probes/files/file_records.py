"""Writing down what was done to a file: by which thread, under which lock."""

from __future__ import annotations

import fcntl
import os
from typing import Any, Literal

import torch.utils.data

from ddpcheck.evidence import File
from ddpcheck.probes.collectives import call_log
from ddpcheck.probes.devices import queued_calls
from ddpcheck.probes.files import paths, writer_threads
from ddpcheck.probes.processes import span_log
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.vocabulary.clock import clock

_locks: dict[int, tuple[int, int]] = {}
"""Descriptors that a lock is held on, and their files."""


def writer() -> recorder.Recorder | None:
    """The recorder, where there is room; none in a process that loads samples."""
    # Beside a main thread that is at work silently, another one may still save.
    found = recorder.always() if writer_threads.name() else recorder.current()
    if found is None or paths.busy() or torch.utils.data.get_worker_info() is not None:
        return None
    return found


def begin(to: recorder.Recorder) -> dict[str, Any]:
    """The two fields that a record begins with, of what begins now: it may be ahead of what orders the ranks."""
    begun = to.next()
    if call_log.on_main_thread():
        queued_calls.note_host_ahead(to)
    return begun


def record(
    to: recorder.Recorder,
    op: Literal["write", "read", "rename", "remove", "query", "content", "append"],
    how: str,
    path: str,
    site: int,
    library: bool = False,
    begun: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    """Write it down, unless there is too much already; ``begun`` is of what began before now."""
    if not paths.has_room():
        return
    thread = writer_threads.name()
    begun = begun or begin(to)
    ended = begun["n"] if "ended" not in more else more.pop("ended")
    more.setdefault("existed", os.path.lexists(path))
    more.setdefault("target", "")
    to.write(
        File(
            **begun,
            op=op,
            how=how,
            path=path,
            site=site,
            ended=ended,
            thread=thread,
            locks=_held(),
            library=library,
            **more,
        )
    )
    if begun["n"] != ended:  # what was one event began and ended at once
        span_log.add(span_log.FILE, begun["at"], clock.now(), site, begun["n"])
    if thread:
        writer_threads.has_done(thread)


# --- locks


def locking(_: recorder.Recorder, descriptor: int, operation: int, *more: Any) -> None:
    if operation & fcntl.LOCK_UN:
        _locks.pop(descriptor, None)
    elif len(_locks) < 100:
        found = os.fstat(descriptor)
        _locks[descriptor] = (found.st_dev, found.st_ino)


def _held() -> list[int]:
    """The inodes of files that a lock is held on: closing the file gives it back."""
    for descriptor, file in list(_locks.items()):
        try:
            found = os.fstat(descriptor)
        except OSError as error:
            signal_exceptions.let_through(error)
            found = None
        if found is None or (found.st_dev, found.st_ino) != file:
            _locks.pop(descriptor, None)
    return sorted({inode for _, inode in _locks.values()})
