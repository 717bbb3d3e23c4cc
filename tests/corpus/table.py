"""The corpus as a table: what each fault was found as, where, and what was said of its correct twin.

    python tests/corpus/table.py [--command] [NAME …]

shows the programs whose names begin so; with ``--command`` each is run under
``ddpcheck run`` itself, in interpreters, which takes a quarter of an hour for
all of them. ``--markdown`` prints docs/corpus.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import rows as running  # noqa: E402
from left_out import LEFT_OUT, MISSED  # noqa: E402
from programs import Program, programs  # noqa: E402
from rich.console import Console  # noqa: E402
from rows import Row, fitting, site  # noqa: E402

from ddpcheck.vocabulary.model import Finding  # noqa: E402
from tests.recordings.recorder import Recorder  # noqa: E402


def cells(program: Program, row: Row) -> list[str]:
    """One line of the table."""
    return [
        program.row,
        program.name,
        shown(row.found) if program.faulty else "",
        ("" if not program.faulty else "missed" if fitting(program, row) is None else site(program, row)),
        shown(row.alarms),
    ]


def shown(findings: Iterable[Finding]) -> str:
    """The findings' checks; a warning with a question mark."""
    return ", ".join(f.check + ("" if f.severity == "error" else " (warning)") for f in findings)


def summary(pairs: list[tuple[Program, Row]]) -> str:
    """The figures of the whole table, in a sentence."""
    faulty = [(p, r) for p, r in pairs if p.faulty]
    if not faulty:
        return ""
    found = sum(fitting(p, r) is not None for p, r in faulty)
    right = sum(site(p, r) != "no" for p, r in faulty)
    alarms = [f for _, r in pairs for f in r.alarms]
    errors = sum(f.severity == "error" for f in alarms)
    mean = sum(len(r.found) for _, r in faulty) / len(faulty)
    return (
        f"{found} of {len(faulty)} faults found under a fitting check, {right} of them at the faulty line or the line "
        f"that proves it, {mean:.2f} findings for each; on {len(pairs)} correct programs {errors} findings of severity "
        f"error and {len(alarms) - errors} warnings"
    )


HEAD = ["row", "program", "found as", "line", "said of the correct twin"]


def as_markdown(pairs: list[tuple[Program, Row]]) -> str:
    """docs/corpus.md."""
    lines = [
        "# The corpus",
        "",
        "Real faults of distributed training, each as a small script in fixtures/corpus with its correct twin:",
        "`--fault` makes the difference. The last ones have no fault: programs that a naive check would flag.",
        "`line` says whether the finding points at the fault itself or at a line that proves it.",
        "`python tests/corpus/table.py --markdown` makes this file, tests/corpus/test_corpus.py holds every line.",
        "",
        f"{summary(pairs)}.",
        "",
        "| " + " | ".join([*HEAD, "the fault"]) + " |",
        "|---" * (len(HEAD) + 1) + "|",
        *[markdown_line(p, r) for p, r in pairs],
        "",
        "## Faults that are not found",
        "",
        "| program | reason |",
        "|---|---|",
        *[f"| {name} | {why} |" for name, why in sorted(MISSED.items())],
        "",
        "## Rows without a program",
        "",
        "| row | reason |",
        "|---|---|",
        *[
            f"| {row} | {why} |"
            for row, why in sorted(LEFT_OUT.items(), key=lambda item: (item[0][0], int(item[0][1:])))
        ],
    ]
    return "\n".join(lines) + "\n"


def markdown_line(program: Program, row: Row) -> str:
    """One program's line of docs/corpus.md."""
    return "| " + " | ".join([*cells(program, row), program.title]) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description="The corpus as a table.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--command", action="store_true", help="run each under ddpcheck run itself")
    parser.add_argument("--markdown", action="store_true", help="print docs/corpus.md")
    options = parser.parse_args()
    console = Console(stderr=options.markdown, highlight=False)
    pairs = []
    chosen = programs(*options.names)
    recorder = Recorder()
    for number, program in enumerate(chosen, 1):
        with console.status(f"{program.name}, {number} of {len(chosen)}"):
            row = running.by_command(program) if options.command else running.by_recordings(program, recorder.named)
        pairs.append((program, row))
        line = cells(program, row)
        bad = line[3] in ("missed", "no") or any(f.severity == "error" for f in row.alarms) or row.notes
        console.print(
            f"{line[0]:6}{line[1]:38}{line[3]:8}{row.seconds:5.1f} s  {line[2]}"
            + (f"   twin: {line[4]}" if line[4] else "") + (f"   {row.notes}" if row.notes else ""),
            style="red" if bad else None, markup=False,
        )  # fmt: skip
    recorder.close()
    console.print(summary(pairs))
    if options.markdown:
        sys.stdout.write(as_markdown(pairs))
    wrong = [p.name for p, r in pairs if r.notes or any(f.severity == "error" for f in r.alarms)]
    return int(bool(wrong) or any(p.faulty and fitting(p, r) is None and p.name not in MISSED for p, r in pairs))


if __name__ == "__main__":
    sys.exit(main())
