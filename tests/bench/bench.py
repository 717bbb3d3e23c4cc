"""What ddpcheck costs, measured on this machine beside its peers and its targets.

Prints tables; exits with 0 whether or not a target is reached, and with 1 if
something could not be measured. A round of ``steps`` takes twenty minutes on
two cores, the first one forty; all else together takes five.

    python tests/bench/bench.py
    python tests/bench/bench.py --only per-test,digests
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import conformance
import digests
import failing
import figures
import heavy
import memory
import properties
import seconds
import steps
import world_sizes
from figures import Row
from inner import MeasurementFailed, Workbench
from rich.console import Console

WIDTH = 160
"""Columns of the tables where there is no terminal."""

Part = Callable[[Workbench, int, Console], Iterator[tuple[str, list[Row]]]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What ddpcheck costs, beside its peers and its targets.")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}, with commas between them")
    parser.add_argument("--rounds", type=int, default=4, help="how often the peers take turns")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(figures.machine(), highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    begun = time.monotonic()
    try:
        bench = Workbench(folder)
        bench.session("inner_steps.py", BENCH_RANKS=2, BENCH_TESTS=1)  # byte code and page cache, for all that follow
        measured = [_measure(part, bench, options.rounds, console) for part in options.only.split(",")]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    judged = [row for rows in measured for row in rows or () if row.reached is not None]
    reached = sum(bool(row.reached) for row in judged)
    console.print(f"{reached} of {len(judged)} targets reached; measured in {time.monotonic() - begun:.0f} s")
    return 1 if any(rows is None for rows in measured) else 0


def _measure(part: str, bench: Workbench, rounds: int, console: Console) -> list[Row] | None:
    """Measure one part and print its tables; None if that failed."""
    found: list[Row] = []
    try:
        for title, rows in PARTS[part](bench, rounds, console):
            found += rows
            console.print(figures.table(title, rows))
    except MeasurementFailed as error:
        console.print(f"{part} could not be measured: {error}", style="red", markup=False)
        return None
    return found


def _per_test(bench: Workbench, rounds: int, console: Console) -> Iterator[tuple[str, list[Row]]]:
    measured = seconds.PerTest()
    for turn in range(rounds):
        with console.status(f"harnesses in turns: round {turn + 1} of {rounds}"):
            measured.round(bench)
    yield "a. Seconds per test: one DDP step, parameters compared; median (and middle eight tenths)", measured.rows()
    yield "b. The first test of a session", [measured.first_row()]


def _world_sizes(bench: Workbench, rounds: int, console: Console) -> Iterator[tuple[str, list[Row]]]:
    with console.status("world sizes"):
        yield "c. Ranks on this machine: the same test, and its time per rank", world_sizes.measure(bench)


def _failing(bench: Workbench, rounds: int, console: Console) -> Iterator[tuple[str, list[Row]]]:
    with console.status("failing ranks"):
        yield "d. From a rank's failure to the report, the others blocked in a collective", failing.measure(bench)


def _memory(bench: Workbench, rounds: int, console: Console) -> Iterator[tuple[str, list[Row]]]:
    with console.status("memory"):
        yield "e. Memory of a rank's own, after one DDP step", memory.measure(bench)


def _digests(bench: Workbench, rounds: int, console: Console) -> Iterator[tuple[str, list[Row]]]:
    with console.status("digests"):
        yield "f. Digests of state", digests.measure()


def _steps(bench: Workbench, rounds: int, console: Console) -> Iterator[tuple[str, list[Row]]]:
    measured = steps.Slowdown()
    for turn in range(rounds):
        with console.status(f"training scripts: round {turn + 1} of {rounds}"):
            measured.round()
    yield "g. A training step with probes on, and off, within one run; processor time of all ranks", measured.rows()


def _heavy(bench: Workbench, rounds: int, console: Console) -> Iterator[tuple[str, list[Row]]]:
    with console.status("many parameters, loaders and tiny steps"):
        measured = heavy.measure(rounds)
    yield "j. Many parameters, loaders and tiny steps under `ddpcheck run`, and under torchrun alone; median", measured


def _conformance(bench: Workbench, rounds: int, console: Console) -> Iterator[tuple[str, list[Row]]]:
    with console.status("the conformance suite"):
        yield "i. The conformance suite, for the plain loop of fixtures/trainers", conformance.measure()


def _properties(bench: Workbench, rounds: int, console: Console) -> Iterator[tuple[str, list[Row]]]:
    measured = properties.Examples()
    for turn in range(rounds):
        with console.status(f"properties: round {turn + 1} of {rounds}"):
            measured.round(bench)
    yield "h. Properties: examples in living ranks; median (and middle eight tenths)", measured.rows()


PARTS: dict[str, Part] = {
    "per-test": _per_test,
    "world-sizes": _world_sizes,
    "failing": _failing,
    "memory": _memory,
    "digests": _digests,
    "steps": _steps,
    "heavy": _heavy,
    "conformance": _conformance,
    "properties": _properties,
}


if __name__ == "__main__":
    sys.exit(main())
