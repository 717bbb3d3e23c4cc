"""Thousands of random programs on simulated devices, each against the table of real rules.

What must hold: a program stops at the step that real devices refuse, and at no
other; every value and every gradient is on the device where it would be on real
ones; and all are the CPU's to the bit.

    python -m tests.devices.soak_placement --cases 10000 --seed 0
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from tests.devices.graphs import Program, disagreement, draw, expected

SHOWN = 5
"""Disagreements that are printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="how many programs (10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program; each next one has the next (0)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(width=None if sys.stdout.isatty() else 120)
    counts: Counter[str] = Counter()
    wrong: list[tuple[int, str]] = []
    began = time.monotonic()
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not sys.stdout.isatty()) as progress:
        for seed in progress.track(range(options.seed, options.seed + options.cases)):
            program = draw(random.Random(seed))
            counts.update(_kinds(program))
            if why := disagreement(program):
                wrong.append((seed, why))
    for seed, why in wrong[:SHOWN]:
        console.print(f"seed {seed}: {why}", style="red", markup=False, highlight=False)
    console.print(
        f"{options.cases} random programs, {counts['steps']} steps on cpu and cuda:0 to cuda:3: "
        f"{counts['refused']} refused, {counts['trained']} to the end and trained; {len(wrong)} disagreements "
        f"({time.monotonic() - began:.0f} s, torch {torch.__version__}, seeds from {options.seed})"
    )
    return 1 if wrong else 0


def _kinds(program: Program) -> dict[str, int]:
    devices, refused_at = expected(program)
    return {"steps": len(devices), "refused" if refused_at is not None else "trained": 1}


if __name__ == "__main__":
    sys.exit(main())
