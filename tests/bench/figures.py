"""A measured figure beside its peer and its target, and tables of them."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One line of a table; what is empty does not apply."""

    what: str
    measured: str
    peer: str = ""
    ratio: str = ""
    target: str = ""
    reached: bool | None = None


def table(title: str, rows: Sequence[Row]) -> Table:
    made = Table(title=title, title_justify="left", min_width=100)
    made.add_column("what")
    for column in ("ddpcheck", "peer", "ratio", "target"):
        made.add_column(column, justify="right", no_wrap=True)
    made.add_column("reached")
    for row in rows:
        reached = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[row.reached]
        made.add_row(row.what, row.measured, row.peer, row.ratio, row.target, reached)
    return made


def spread(values: Sequence[float], digits: int = 3) -> str:
    """The median of these seconds, and between what the middle eight tenths lie."""
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return f"{statistics.median(ordered):.{digits}f} s  ({low:.{digits}f} to {high:.{digits}f})"


def machine() -> str:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "pytest", "ddpcheck"))
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores of {model}, load {load:.1f} before; Python {platform.python_version()}, {versions}"
