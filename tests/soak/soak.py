"""Thousands of two-rank tests in one session, most passing and many ending badly, each with a known outcome.

What must hold: every test has the outcome that its kind must have, with the
text that a reader needs; whatever a test leaves behind is gone before the next;
at the end there is no process, temporary folder or shared memory of the run,
and neither pytest nor the zygote holds more files than at the start.

    python tests/soak/soak.py --tests 2000 --seed 1
    python tests/soak/soak.py --tests 2000 -n 2        # distributed by pytest-xdist
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import project
import scenarios
import session
import traces
from rich.console import Console
from rich.table import Table

MORE_FILES = 10
"""A process that holds this many more open files at the end than at the start leaks them."""


SHOWN = 3000
"""Characters of a wrong test's report that are shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    cases = scenarios.draw(options.tests, options.seed)
    if options.only:
        kinds = options.only.split(",")
        cases = [case for case in cases if case.scenario.kind in kinds]
    folder = Path(tempfile.mkdtemp(prefix="soak-")) / "project"
    project.write(folder, cases)
    console.print(f"{len(cases)} tests, seed {options.seed}, in {folder}")

    run = uuid.uuid4().hex
    shared = traces.shared_memory()
    told = session.run(folder, len(cases), run, options.n, console)
    left = _left(run, shared, folder / "tmp")
    wrong = {case.number: why for case in cases if (why := _wrong(case, told))}

    console.print(_table(cases, told, wrong))
    for case in cases:
        if case.number in wrong:
            console.print(f"{case.id}: {wrong[case.number]}", style="red", markup=False, highlight=False)
    for text in left:
        console.print(text, style="red", markup=False, highlight=False)
    leaks = []
    for name, first, last in session.growth(told.holdings) if not options.n else ():
        leaking = ("files" in name and last - first >= MORE_FILES) or ("threads" in name and last > first)
        leaks += [name] if leaking else []
        console.print(f"{name}: {first:.0f} at the start, {last:.0f} at the end", style="red" if leaking else None)
    good = not wrong and not left and not leaks and told.exit_code is not None
    ended = "did not end" if told.exit_code is None else f"left with exit code {told.exit_code}"
    summary = f"{len(wrong)} wrong outcomes and {len(left)} traces of {len(cases)} tests in {told.seconds:.0f} s"
    console.print(f"{summary}; pytest {ended}", style="green" if good else "red")
    if good:
        shutil.rmtree(folder.parent, ignore_errors=True)
    else:
        console.print(f"pytest's output and reports are in {folder}")
    return 0 if good else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Thousands of two-rank tests in one session.")
    parser.add_argument("--tests", type=int, default=2000, help="how many")
    parser.add_argument("--seed", type=int, default=None, help="of the mixture; by default another one every time")
    parser.add_argument("--only", default="", help="kinds, with commas between them, of which alone the tests are run")
    parser.add_argument("-n", type=int, default=0, metavar="WORKERS", help="distribute over workers of pytest-xdist")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = time.time_ns() % 1_000_000
    return options


def _left(run: str, shared: set[str], temp: Path) -> list[str]:
    """What of the run is left now that pytest has ended."""
    found = [f"process left: {pid} {line}" for pid, line in traces.processes(run).items()]
    found += [f"temporary folder left: {name}" for name in traces.folders(temp)]
    if traces.shared_memory() - shared:
        time.sleep(5.0)  # another program's, perhaps, and gone by then
        found += [f"shared memory left: {name}" for name in sorted(traces.shared_memory() - shared)]
    return found


def _wrong(case: scenarios.Case, told: session.Told) -> str:
    """In what this test's outcome is not the expected one; empty if in nothing."""
    outcomes = told.outcomes.get(case.number, set())
    if outcomes != {case.scenario.outcome}:
        shown = " and ".join(sorted(outcomes)) or "not reported"
        return f"expected {case.scenario.outcome}, was {shown}: {_shortened(told.texts[case.number])}"
    if case.number in told.left:
        return f"left processes until after its end: {told.left[case.number]}"
    lacking = scenarios.missing(case, told.texts[case.number], told.warnings[case.number])
    return f"{lacking}: {_shortened(told.texts[case.number])} {told.warnings[case.number]}" if lacking else ""


def _shortened(text: str) -> str:
    """The beginning and the end of a long report."""
    text = text.strip()
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]}\n[...]\n{text[-SHOWN // 2 :]}"


def _table(cases: Sequence[scenarios.Case], told: session.Told, wrong: dict[int, str]) -> Table:
    by_kind: dict[str, list[scenarios.Case]] = defaultdict(list)
    for case in cases:
        by_kind[case.scenario.kind].append(case)
    table = Table(title="soak")
    for column in ("kind", "must be"):
        table.add_column(column)
    for column in ("tests", "wrong", "median s", "max s"):
        table.add_column(column, justify="right")
    for scenario in scenarios.SCENARIOS:
        of_kind = by_kind[scenario.kind]
        if not of_kind:
            continue
        bad = sum(case.number in wrong for case in of_kind)
        times = [told.durations[case.number] for case in of_kind if case.number in told.durations]
        median, most = (f"{statistics.median(times):.2f}", f"{max(times):.2f}") if times else ("-", "-")
        table.add_row(
            scenario.kind, scenario.outcome, str(len(of_kind)), str(bad), median, most, style="red" if bad else None
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
