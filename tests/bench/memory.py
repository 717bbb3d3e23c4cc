"""The memory that is a rank's own, after one step of a DDP model: forked from the zygote, or a new interpreter."""

from __future__ import annotations

import statistics
import uuid
from pathlib import Path

from figures import Row
from inner import MeasurementFailed, Workbench

SIZES = (2, 8)
TESTS = 3
LIMIT = 20e6


def measure(bench: Workbench) -> list[Row]:
    """Each rank writes its Private_Dirty at the end of the test's body."""
    rows = []
    for size in SIZES:
        forked, spawned = _folder(bench), _folder(bench)
        bench.session("inner_steps.py", BENCH_RANKS=size, BENCH_TESTS=TESTS, BENCH_MEMORY=forked)
        bench.peer("Spawned", size, 1, 60.0, BENCH_MEMORY=spawned)
        mine, peers = _amounts(forked), _amounts(spawned)
        most = max(mine)
        rows.append(
            Row(
                f"each of {size} ranks (the largest: {most / 1e6:.1f} MB), against a spawned interpreter",
                f"{statistics.median(mine) / 1e6:.1f} MB",
                f"{statistics.median(peers) / 1e6:.1f} MB",
                f"1/{statistics.median(peers) / statistics.median(mine):.0f}",
                f"{LIMIT / 1e6:.0f} MB",
                most <= LIMIT,
            )
        )
    return rows


def _folder(bench: Workbench) -> Path:
    folder = bench.folder / f"memory-{uuid.uuid4().hex}"
    folder.mkdir()
    return folder


def _amounts(folder: Path) -> list[int]:
    amounts = [int(file.read_text()) for file in folder.iterdir()]
    if not amounts:
        raise MeasurementFailed("no rank has written how much memory is its own")
    return amounts
