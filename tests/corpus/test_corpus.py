"""Every program of the corpus: its fault is found, where it is, and nothing is said of its correct twin."""

from __future__ import annotations

from pathlib import Path

import pytest
from left_out import LEFT_OUT, MISSED, ROWS
from programs import programs, read
from rows import by_recordings, fitting, site
from table import markdown_line

ALL = programs()
HERE = Path(__file__).parent
DOCUMENT = (HERE.parents[1] / "docs" / "corpus.md").read_text()


@pytest.mark.long  # a program of each check and its twin run in tests/programs
@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_a_program(program, recorded):
    """The fault under a fitting check and at a fitting line, in one finding or little more; no error on the twin."""
    row = by_recordings(program, lambda name: recorded(name).evidence)
    assert row.notes == []
    assert [f.message for f in row.alarms if f.severity == "error"] == []
    if program.name in MISSED:  # as soon as it is found, it is missed no longer
        assert fitting(program, row) is None
    elif program.faulty:
        found = fitting(program, row)
        assert found is not None, [f.message for f in row.found]
        assert site(program, row) in ("fault", "proof"), found.where
        assert len(row.found) <= 3
        assert found.severity == "error" or program.severity == "warning" or "(warning)" in _documented(program)
    assert markdown_line(program, row) == _documented(program)


def _documented(program):
    """The program's line in docs/corpus.md."""
    return next((line for line in DOCUMENT.splitlines() if f"| {program.name} |" in line), "")


def test_every_row_has_a_program_or_a_reason():
    """Nothing of the list of faults is left out in silence."""
    rows = {program.row for program in ALL}
    assert [row for row in ROWS if row not in rows and row not in LEFT_OUT] == []
    assert [row for row in LEFT_OUT if row in rows or row not in ROWS] == []
    for row, reason in LEFT_OUT.items():
        assert f"| {row} | {reason} |" in DOCUMENT


def test_what_is_missed_has_a_reason():
    """The document says why, and of programs that there are."""
    assert MISSED.keys() <= {program.name for program in ALL}
    for name, reason in MISSED.items():
        assert f"| {name} | {reason} |" in DOCUMENT


def test_the_document_has_no_line_too_many():
    """docs/corpus.md lists the programs that there are."""
    listed = [
        line.split("|")[2].strip() for line in DOCUMENT.split("## Faults")[0].splitlines() if line.startswith("| ")
    ]
    assert listed[1:] == [program.name for program in ALL]


def test_every_program_is_marked():
    """Each fault has a line, and each program says how it ends."""
    for program in ALL:
        assert program.ends in ("finishes", "fails", "hangs")
        assert ("fault" in program.lines.values()) == program.faulty, program.name
        assert read(program.path) == program
