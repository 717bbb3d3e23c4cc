"""The faulty trainers as a table: the mistake, the checks that find it, and by which factor it is told to be off.

    python -m tests.conformance.table

writes docs/conformance-faults.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fixtures.trainers.faulty.fault import Fault
from fixtures.trainers.faulty.registry import FAULTS
from fixtures.trainers.plain import Trainer

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance-faults.md"

FAMILIES = {
    "C": "Loss and gradient",
    "D": "Sampling and sharding",
    "F": "Checkpoints and resuming",
    "G": "Random streams",
    "H": "Buffers",
    "I": "Metrics and evaluation",
    "L": "Learning rates",
}

HEAD = """\
# Faulty trainers

Mistakes that real training libraries have made, each in a small trainer (fixtures/trainers/faulty) that differs from
the plain loop (fixtures/trainers/plain.py) in one or two methods. The checks named here are violated by it, at the
number of ranks given; they hold for its twin, which does the same right. Where the mistake is a factor, the finding
names it, at every step and in two, three and four ranks. tests/conformance/test_faulty.py holds every line;
`python -m tests.conformance.table` writes this file.
"""


def summary() -> str:
    """The figures of the whole table, in a sentence."""
    rows, factors = {fault.row for fault in FAULTS}, [fault for fault in FAULTS if fault.factor is not None]
    return (
        f"{len(FAULTS)} trainers for {len(rows)} rows: all are found, {len(factors)} of them by their factor, and none "
        "of their twins."
    )


def as_markdown() -> str:
    """docs/conformance-faults.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    yield summary()
    for letter, title in FAMILIES.items():
        yield ""
        yield f"## {title}"
        yield ""
        yield "| row | trainer | the mistake | violated | ranks | the factor | the twin |"
        yield "|---|---|---|---|---|---|---|"
        yield from (_line(fault) for fault in FAULTS if fault.row.startswith(letter))


def _line(fault: Fault) -> str:
    checks = ", ".join(f"`{check}`" for check in fault.checks)
    factor = fault.factor.name if fault.factor is not None else ""
    twin = "the plain loop" if fault.twin is Trainer else fault.twin.__name__
    cells = [fault.row, fault.trainer.__name__, fault.title, checks, str(fault.world_size), factor, twin]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown())
