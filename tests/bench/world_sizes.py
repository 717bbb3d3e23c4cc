"""How the time of a test grows with its ranks, from two to sixty-four on this machine."""

from __future__ import annotations

import statistics

from figures import Row, spread
from inner import Workbench

SIZES = (2, 4, 8, 16, 32, 64)
TESTS = 3
REFERENCE = 8
GROWTH = 1.1
"""Time per rank may exceed that at the reference by this factor, for the noise, and still counts as flat."""


def measure(bench: Workbench) -> list[Row]:
    """One session with a few tests of every size."""
    sizes = ",".join(map(str, SIZES))
    session = bench.session("inner_steps.py", BENCH_RANKS=sizes, BENCH_TESTS=TESTS)
    rows = []
    taken = {size: session.seconds("test_compared", size) for size in SIZES}
    taken[SIZES[0]] = taken[SIZES[0]][1:]  # the first waited for the zygote
    each = {size: statistics.median(taken[size]) / size for size in SIZES}
    for size in SIZES:
        judged = size > REFERENCE
        rows.append(
            Row(
                f"{size} ranks",
                spread(taken[size]),
                f"{1000 * each[size]:.0f} ms per rank",
                f"{each[size] / each[REFERENCE]:.2f}",
                f"1 (to {REFERENCE} ranks)" if judged else "",
                each[size] <= GROWTH * each[REFERENCE] if judged else None,
            )
        )
    return rows
