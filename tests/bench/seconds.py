"""What a short test costs: ddpcheck beside torch's own harnesses, with the same work in each.

All are run in turns, so that a busy moment of the machine hits each alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from figures import Row, spread
from inner import MeasurementFailed, PeerTest, Workbench

TESTS = 40
"""Tests in each inner session, and in each run of MultiProcContinuousTest."""
LIMIT = 60.0
"""Seconds for one MultiProcessTestCase test. On torch 2.13 a correct one may wait for 300 s:
gloo aborts a process on its way out, and the harness expects another exit code."""
TRIES = 2
"""So often a round tries to get one of them to pass."""
ENOUGH = 1 / 40
WARM_ENOUGH = 1.5
SIZES = (2, 4)


class PerTest:
    """The times of all rounds so far."""

    def __init__(self) -> None:
        self.compared: dict[int, list[float]] = {size: [] for size in SIZES}
        self.asserted: dict[int, list[float]] = {size: [] for size in SIZES}
        self.spawned: dict[int, list[PeerTest]] = {size: [] for size in SIZES}
        self.warm: dict[int, list[float]] = {size: [] for size in SIZES}
        self.warm_one_thread: dict[int, list[float]] = {size: [] for size in SIZES}
        """The same with OMP_NUM_THREADS=1, which is what ddpcheck gives its ranks."""
        self.cold: dict[int, list[float]] = {size: [] for size in SIZES}
        self.first: list[float] = []

    def round(self, bench: Workbench) -> None:
        """Run each harness once at each world size."""
        for size in SIZES:
            session = bench.session("inner_steps.py", BENCH_RANKS=size, BENCH_TESTS=TESTS)
            if size == SIZES[0]:
                self.first.append(session.tests[0]["ended"] - session.begun)
            # The first test of a session waits for the zygote: that is the figure after this one.
            self.compared[size] += session.seconds("test_compared", size)[1:]
            self.asserted[size] += session.seconds("test_asserted", size)
            for _ in range(TRIES):
                self.spawned[size] += bench.peer("Spawned", size, 1, LIMIT)
                if self.spawned[size][-1].seconds is not None:
                    break
            first, *others = bench.peer("Continuous", size, TESTS, LIMIT)
            if first.seconds is not None:
                self.cold[size].append(first.seconds)
            self.warm[size] += _finished(others)
            one_thread = bench.peer("Continuous", size, TESTS, LIMIT, OMP_NUM_THREADS=1)
            self.warm_one_thread[size] += _finished(one_thread[1:])

    def rows(self) -> list[Row]:
        """ddpcheck's seconds per test, against both peers."""
        rows = []
        for size in SIZES:
            rows.append(self._against_spawned(size))
            rows.append(self._against_warm(size))
            rows.append(
                self._beside(
                    f"{size} ranks, the same with OMP_NUM_THREADS=1", self.compared[size], self.warm_one_thread[size]
                )
            )
            what = f"{size} ranks, assert_replicas_identical in the place of the collective"
            rows.append(self._beside(what, self.asserted[size], self.warm[size]))
        return rows

    def _against_spawned(self, size: int) -> Row:
        finished = _finished(self.spawned[size])
        what = f"{size} ranks, against MultiProcessTestCase"
        if len(finished) < len(self.spawned[size]):
            what += f" ({len(self.spawned[size]) - len(finished)} of its {len(self.spawned[size])} tests did not pass)"
        ratio = _ratio(self.compared[size], finished)
        return Row(
            what,
            spread(self.compared[size]),
            spread(finished, 2),
            f"1/{1 / ratio:.0f}",
            f"1/{1 / ENOUGH:.0f}",
            ratio <= ENOUGH,
        )

    def _against_warm(self, size: int) -> Row:
        ratio = _ratio(self.compared[size], self.warm[size])
        return Row(
            f"{size} ranks, against MultiProcContinuousTest warm (its first: {spread(self.cold[size], 1)})",
            spread(self.compared[size]),
            spread(self.warm[size]),
            f"{ratio:.2f}",
            f"{WARM_ENOUGH}",
            ratio <= WARM_ENOUGH,
        )

    def _beside(self, what: str, mine: list[float], peers: list[float]) -> Row:
        return Row(what, spread(mine), spread(peers), f"{_ratio(mine, peers):.2f}")

    def first_row(self) -> Row:
        """From the start of pytest's process to the end of the first test."""
        finished = _finished(self.spawned[2])
        ratio = _ratio(self.first, finished)
        return Row(
            "start of pytest to the end of its first test, 2 ranks, against one MultiProcessTestCase test",
            spread(self.first, 2),
            spread(finished, 2),
            f"{ratio:.2f}",
            "1",
            ratio <= 1,
        )


def _finished(tests: Sequence[PeerTest]) -> list[float]:
    finished = [test.seconds for test in tests if test.seconds is not None]
    if not finished:
        raise MeasurementFailed(f"no test of the peer passed: {tests}")
    return finished


def _ratio(mine: Sequence[float], peers: Sequence[float]) -> float:
    return statistics.median(mine) / statistics.median(peers)
