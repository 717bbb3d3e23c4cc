"""Folding memory into large pages: all contents stay, and where it cannot be done nothing happens."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

from ddpcheck.ranks import hugepages
from ddpcheck.ranks.hugepages import HUGE_PAGE, Folding, private_regions

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


@linux
def test_large_memory_is_among_them():
    """What a test allocates anonymously is found, and keeps its contents when it is folded."""
    kept = ctypes.create_string_buffer(b"x" * (4 * HUGE_PAGE))
    address = ctypes.addressof(kept)
    assert [r for r in private_regions() if address <= r < address + 3 * HUGE_PAGE]
    folding = Folding()
    while folding.go_on():
        pass
    assert kept.raw[:-1] == b"x" * (4 * HUGE_PAGE)


def test_it_ends():
    """It goes through the memory of its first call once, and then costs nothing."""
    folding = Folding()
    steps = 0
    while folding.go_on(pages=64):
        steps += 1
        assert steps < 100_000
    assert not folding.go_on()


def test_where_it_cannot_be_done_nothing_is(monkeypatch):
    """On another system, not a single region is looked for."""
    monkeypatch.setattr(hugepages.sys, "platform", "darwin")
    monkeypatch.setattr(hugepages, "private_regions", lambda: pytest.fail("looked for regions"))
    assert not Folding().go_on()
