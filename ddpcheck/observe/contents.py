"""What small files that were opened to be written anew hold, once they have been written: whether ranks put the same.

Nothing tells when a file is closed. So it is looked at when the process does something else that is watched.
"""

from __future__ import annotations

import os

import xxhash

from ddpcheck.evidence import NO_SITE
from ddpcheck.observe import endings, paths, touching

MOST = 8192
"""Bytes of a file that Python writes at once, when it is closed: a larger one may be seen in the midst of it."""
_WAITING = 64

_opened: dict[str, None] = {}


def watch() -> None:
    """Have the last of them looked at before the end."""
    endings.before_end(look)


def opened(path: str) -> None:
    """A file is about to be emptied, to be written anew."""
    if len(_opened) < _WAITING:
        _opened[path] = None


def forget() -> None:
    """What was opened is another process's affair: this one was forked from it."""
    _opened.clear()


def look() -> None:
    """Write down what is in the files that were opened, as far as they have been written."""
    writer = touching.writer() if _opened else None
    if writer is None:
        return
    with paths.Busy():
        for path in list(_opened):
            try:
                held = _read(path)
            except OSError:
                held = b""
            if held:  # an empty one may be written yet, and says nothing
                _opened.pop(path, None)
            if 0 < len(held) <= MOST:
                digest = xxhash.xxh3_64_hexdigest(held)
                touching.record(writer, "content", "", path, NO_SITE, existed=True, identity=digest)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, MOST + 1) if os.fstat(descriptor).st_size else b""
    finally:
        os.close(descriptor)
