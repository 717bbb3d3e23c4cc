"""The corpus as a table: each program with its fault and without, what was found, and where.

``python -m tests.corpus.table [NAME …]`` prints it for the programs whose
names begin so.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ddpcheck.checks.grouping import grouped
from tests.corpus import forked

CORPUS = Path(__file__).parents[2] / "fixtures" / "corpus"


@dataclass
class Program:
    """One file of the corpus, and what it says of itself."""

    path: Path
    row: str
    checks: list[str]
    ends: str
    nproc: int = 2
    launch: str = "torchrun"
    severity: str = "error"
    env: dict[str, str] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    """The lines that are marked as the fault, or as what proves it."""

    @property
    def faulty(self) -> bool:
        """It has a fault to switch on; the others are correct programs."""
        return self.row != "ok"


def programs(*prefixes: str) -> list[Program]:
    """The programs of the corpus, by name."""
    found = []
    for path in sorted(CORPUS.glob("*.py")):
        if path.stem == "__init__" or (prefixes and not path.stem.startswith(prefixes)):
            continue
        text = path.read_text()
        said = next(
            ast.literal_eval(node.value)
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CORPUS"
        )
        lines = {
            number: match[1]
            for number, line in enumerate(text.splitlines(), 1)
            if (match := re.search(r"#\s*(FAULT|PROOF)\b", line))
        }
        found.append(Program(path=path, lines=lines, **said))
    return found


@dataclass
class Row:
    """What came of one program."""

    program: Program
    found: list = field(default_factory=list)
    alarms: list = field(default_factory=list)
    """Findings on the correct twin."""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def fitting(self):
        """The finding under a fitting check id; None where there is none."""
        return next((f for f in self.found if f.check in self.program.checks), None)

    @property
    def site(self) -> str:
        """``fault``, ``proof`` or ``no``: where the fitting finding points."""
        finding = self.fitting
        if finding is None or finding.where is None or Path(finding.where.file).name != self.program.path.name:
            return "no"
        return self.program.lines.get(finding.where.line, "no").lower()


def row_of(program: Program) -> Row:
    """Run a program both ways."""
    row = Row(program)
    correct = forked.run(program.path, ranks=program.nproc, env=program.env)
    row.alarms = list(grouped(correct.findings))
    row.seconds = correct.seconds
    if any(correct.exits.values()) or correct.hung:
        row.notes.append(f"the twin ended with {correct.exits}: {correct.output.strip()[-200:]}")
    if not correct.worlds:
        row.notes.append("the twin made no world")
    if program.faulty:
        ran = forked.run(program.path, "--fault", ranks=program.nproc, env=program.env)
        row.found = list(grouped(ran.findings))
        row.seconds += ran.seconds
        if ran.hung and not ran.certain:
            row.notes.append("the hang was not certain")
        if (program.ends == "hangs") != ran.hung:
            row.notes.append(f"should end as {program.ends}, and ended with {ran.exits}, hung {ran.hung}")
    return row


def main() -> None:
    forked.watching.patch()
    rows = []
    for program in programs(*sys.argv[1:]):
        if program.launch == "spawn":
            print(f"{program.row:6} {program.path.stem:34} starts its own ranks")
            continue
        row = row_of(program)
        rows.append(row)
        shown = ", ".join(f"{f.check}{'!' if f.severity == 'error' else '?'}@{f.where.line if f.where else '-'}"
                          for f in row.found)  # fmt: skip
        alarms = ", ".join(f"{f.check}{'!' if f.severity == 'error' else '?'}@{f.where.line if f.where else '-'}"
                           for f in row.alarms)  # fmt: skip
        if not program.faulty:
            verdict = ""
        else:
            verdict = "found" if row.fitting else "MISSED"
        print(f"{program.row:6} {program.path.stem:34} {verdict:7} {row.site if program.faulty else '':6} {row.seconds:5.1f}s  {shown}"
              + (f"   ALARM {alarms}" if alarms else "") + (f"   NOTE {row.notes}" if row.notes else ""), flush=True)  # fmt: skip
    faulty = [r for r in rows if r.program.faulty]
    if faulty:
        print(f"{sum(r.fitting is not None for r in faulty)} of {len(faulty)} found, "
              f"{sum(r.site != 'no' for r in faulty)} at the right line, "
              f"{sum(len(r.found) for r in faulty) / len(faulty):.2f} findings each, "
              f"{sum(f.severity == 'error' for r in rows for f in r.alarms)} false alarms, "
              f"{sum(f.severity != 'error' for r in rows for f in r.alarms)} warnings on correct programs")  # fmt: skip


if __name__ == "__main__":
    main()
