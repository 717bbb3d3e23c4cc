"""Makes a process cheap to fork: its memory in pages of 2 MB in the place of 4 KB.

A fork copies the table of the parent's pages, and the child's exit takes it
apart again. With torch that is some 50,000 entries: more time than a rank
needs to join its group. The kernel (Linux 6.1 and newer) folds 512 small pages
into a large one when asked; where it cannot, all stays as it was. A forked
child that writes still copies 4 KB, and no more.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

HUGE_PAGE = 2 << 20
_MADV_COLLAPSE = 25

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
if _libc is not None:
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    _libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_ubyte)]


class Folding:
    """Folds this process's own memory bit by bit, so that nobody waits long for it."""

    def __init__(self) -> None:
        self._regions: Iterator[int] | None = None

    def go_on(self, pages: int = 8) -> bool:
        """Fold up to ``pages`` huge pages more (about 1 ms each); returns whether there is more to do."""
        if _libc is None:
            return False
        if self._regions is None:
            self._regions = iter(private_regions())
        for address in self._regions:
            if _is_in_use(address):
                _libc.madvise(address, HUGE_PAGE, _MADV_COLLAPSE)
                pages -= 1
                if not pages:
                    return True
        return False


def _is_in_use(address: int) -> bool:
    """Whether most of this stretch of 2 MB is there: folding fills the rest, which only reserved memory must not be."""
    assert _libc is not None
    there = (ctypes.c_ubyte * (HUGE_PAGE // mmap.PAGESIZE))()
    return _libc.mincore(address, HUGE_PAGE, there) == 0 and 4 * sum(there) >= 3 * len(there)


def private_regions() -> list[int]:
    """The addresses of all stretches of 2 MB that are heap or other memory of this process alone."""
    found: list[int] = []
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # /proc is hidden
        lines = []
    for line in lines:
        span, permissions, _, _, inode, *name = line.split(maxsplit=5)
        if permissions == "rw-p" and inode == "0" and (not name or name[0].startswith(("[heap]", "[anon"))):
            begin, end = (int(x, 16) for x in span.split("-"))
            first = -(-begin // HUGE_PAGE) * HUGE_PAGE
            found += range(first, end - HUGE_PAGE + 1, HUGE_PAGE)
    return found
