"""Files that somebody else may have put there: read if they are files, without a wait for pipes and devices."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST = 1 << 26
"""Bytes of a file that is read whole."""


def opened(path: str | Path, links: bool = False) -> BinaryIO:
    """A regular file, open for reading; raises OSError for what is none, and for a link unless they are allowed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read(path: str | Path, links: bool = False) -> bytes:
    """All of it; raises OSError as well for one that is too large to be what it is taken for."""
    with opened(path, links) as file:
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise OSError(errno.EFBIG, f"it is larger than {MOST >> 20} MB")
    return data
