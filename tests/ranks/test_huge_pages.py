"""Folding memory into large pages: all contents stay, and where it cannot be done nothing happens."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddpcheck.ranks import huge_pages
from ddpcheck.ranks.huge_pages import HUGE_PAGE, Folding, private_regions

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own list of memory")


@linux
def test_regions_are_whole_and_mine():
    """Each region is an aligned stretch of 2 MB of private memory that may be written."""
    regions = private_regions()
    assert regions
    assert all(region % HUGE_PAGE == 0 for region in regions)
    assert len(set(regions)) == len(regions)
    spans = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if "rw-p" in line]
    mine = [(int(begin, 16), int(end, 16)) for begin, end in spans]
    assert all(any(begin <= r and r + HUGE_PAGE <= end for begin, end in mine) for r in private_regions())


def in_memory(address, size):
    """How many of these pages are there, and how many there are."""
    there = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
    assert huge_pages._libc.mincore(address, size, there) == 0
    return sum(there), len(there)


@pytest.fixture
def large():
    """Memory of 16 MB, and the first address in it at which a large page can begin."""
    memory = mmap.mmap(-1, 8 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pin = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(pin)
    yield memory, -(-address // HUGE_PAGE) * HUGE_PAGE
    del pin
    memory.close()


def fold_all():
    folding = Folding()
    while folding.go_on():
        pass


@linux
def test_memory_in_use_keeps_its_contents(large):
    """What a process has written is found, and is the same after it was folded."""
    memory, first = large
    memory.write(b"x" * len(memory))
    assert {first, first + 6 * HUGE_PAGE} <= set(private_regions())
    fold_all()
    memory.seek(0)
    assert memory.read() == b"x" * len(memory)


@linux
def test_memory_that_is_only_reserved_stays_so(large):
    """What was allocated and hardly touched is not filled up."""
    _, first = large
    ctypes.memset(first + HUGE_PAGE, 1, 1)
    before = in_memory(first, 7 * HUGE_PAGE)
    assert 0 < before[0] < before[1] / 2
    fold_all()
    assert in_memory(first, 7 * HUGE_PAGE) == before


def huge_bytes(address):
    """The bytes in large pages of the mapping with this address, as the kernel tells them."""
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            begin, end = (int(x, 16) for x in name.split("-"))
            here = begin <= address < end
        elif here and name == "AnonHugePages:":
            return int(rest[0]) * 1024
    raise AssertionError(f"no mapping at {address:x}")


@linux
def test_memory_in_use_is_folded(large):
    """Where the kernel can, what is in use lies in large pages afterwards."""
    memory, first = large
    memory.write(b"x" * len(memory))
    if huge_pages._libc.madvise(first, HUGE_PAGE, huge_pages._MADV_COLLAPSE) != 0:
        pytest.skip("this kernel folds no pages (Linux 6.1 and newer do)")
    fold_all()
    assert huge_bytes(first) >= 7 * HUGE_PAGE


def test_it_ends():
    """It goes through the memory of its first call once, and then costs nothing."""
    folding = Folding()
    steps = 0
    while folding.go_on(pages=64):
        steps += 1
        assert steps < 100_000
    assert not folding.go_on()


@linux
def test_no_more_is_done_than_was_asked_for(monkeypatch):
    """Each call folds so many pages at most, however many regions it has to pass over."""
    folded = []
    monkeypatch.setattr(huge_pages, "private_regions", lambda: range(100))
    monkeypatch.setattr(huge_pages, "_is_in_use", lambda address: address % 10 == 0)
    monkeypatch.setattr(huge_pages, "_libc", SimpleNamespace(madvise=lambda address, *_: folded.append(address)))
    folding = Folding()
    assert folding.go_on(pages=4)
    assert folded == [0, 10, 20, 30]
    assert folding.go_on(pages=4)
    assert not folding.go_on(pages=4)
    assert folded == list(range(0, 100, 10))


def test_where_it_cannot_be_done_nothing_is(monkeypatch):
    """On another system, not a single region is looked for."""
    monkeypatch.setattr(huge_pages, "_libc", None)
    monkeypatch.setattr(huge_pages, "private_regions", lambda: pytest.fail("looked for regions"))
    assert not Folding().go_on()
