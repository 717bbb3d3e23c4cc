"""Descriptors of ours in a process that is the test's: out of its way, and never mistaken for one of its own.

A test may close what it has not opened (``os.closerange(3, 256)``, as daemons
do), and what it opens next gets the numbers that are free then.
"""

from __future__ import annotations

import contextlib
import os
from fcntl import F_DUPFD_CLOEXEC, fcntl
from os import close, fstat  # by name: a test may replace those of the module
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import NamedTuple

HIGHEST = 4096
"""Above this the kernel's table for a process's descriptors grows, which every fork copies."""


def out_of_reach(descriptor: int) -> int:
    """Move a descriptor near the top of those that there may be; it is not passed on to programs."""
    soft, _ = getrlimit(RLIMIT_NOFILE)
    lowest = HIGHEST if soft == RLIM_INFINITY else max(3, min(HIGHEST, soft - 16))
    with contextlib.suppress(OSError):  # it stays where it is
        moved = fcntl(descriptor, F_DUPFD_CLOEXEC, lowest)
        close(descriptor)
        return moved
    return descriptor


class Identity(NamedTuple):
    """What a descriptor stands for, whatever number it has."""

    device: int
    inode: int


def identity(descriptor: int) -> Identity | None:
    """What a descriptor stands for now; None where it is closed."""
    try:
        about = fstat(descriptor)
    except OSError:
        return None
    return Identity(about.st_dev, about.st_ino)


def holds(pid: int, path: str) -> bool:
    """Whether a process has this file open; true where that cannot be seen."""
    try:
        held = os.listdir(f"/proc/{pid}/fd")
        about = os.stat(path)
    except OSError:
        return True
    for number in held:
        with contextlib.suppress(OSError):
            if os.path.samestat(about, os.stat(f"/proc/{pid}/fd/{number}")):
                return True
    return False
