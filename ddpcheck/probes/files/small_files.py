"""What small files that were opened to be written anew hold, once they have been written: whether ranks put the same.

Nothing tells when a file is closed. So it is looked at when the process does something else that is watched.
"""

from __future__ import annotations

import os
import stat

import xxhash

from ddpcheck.evidence import NO_SITE
from ddpcheck.probes.files import file_records, paths
from ddpcheck.probes.processes import endings
from ddpcheck.probes.recording import recorder, signal_exceptions

MOST = 8192
"""Bytes of a file that Python writes at once, when it is closed: a larger one may be seen in the midst of it."""
_WAITING = 64
_LOOKS = 8
"""Looks at a file that is empty or still open; it is not looked at any more after that."""

_opened: dict[str, int] = {}
"""The files that were opened, and how often each was looked at in vain."""


def watch() -> None:
    """Have the last of them looked at before the end."""
    endings.before_end(look)


def opened(path: str) -> None:
    """A file is about to be emptied, to be written anew."""
    if len(_opened) < _WAITING or path in _opened:
        _opened[path] = 0


def forget() -> None:
    """What was opened is another process's affair: this one was forked from it."""
    _opened.clear()


def look() -> None:
    """Write down what is in the files that were opened, as far as they have been written."""
    writer = file_records.writer() if _opened else None
    if writer is not None:
        with paths.Busy():
            for path in list(_opened):
                _look_at(writer, path)


def renamed(writer: recorder.Recorder, path: str) -> None:
    """A file is about to have another name."""
    if path in _opened:
        _look_at(writer, path)


def _look_at(writer: recorder.Recorder, path: str) -> None:
    held = _read(path)
    looks = _opened.pop(path, 0)
    if held is None and looks + 1 < _LOOKS:
        _opened[path] = looks + 1
    elif held:
        digest = xxhash.xxh3_64_hexdigest(held)
        file_records.record(writer, "content", "", path, NO_SITE, existed=True, identity=digest)


def _read(path: str) -> bytes | None:
    """What is in a small file; None while it may yet be written, empty where nothing can be learnt from it."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST:  # to open a FIFO is to be its reader
            return b""
        if not found.st_size or _in_use(found):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        signal_exceptions.let_through(error)
        return b""
    try:
        held = os.read(descriptor, MOST + 1)
        return held if len(held) <= MOST else b""
    except OSError as error:
        signal_exceptions.let_through(error)
        return b""
    finally:
        os.close(descriptor)


def _in_use(file: os.stat_result) -> bool:
    """Whether this process has the file open: to close any descriptor of it would give back the locks held on it."""
    for name in os.listdir("/dev/fd"):  # where there is no such folder, nobody knows, and it is not looked at
        try:
            if os.path.samestat(os.fstat(int(name)), file):
                return True
        except OSError as error:  # it was the listing's own
            signal_exceptions.let_through(error)
            continue
    return False
