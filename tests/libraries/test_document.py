"""docs/libraries.md has every reason and every small program, as they are; the tables in it come from runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_programs import SHOWS, programs
from table import LIBRARIES, Library, expected_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "libraries.md"


def test_every_program_stands_in_the_document() -> None:
    text = DOCUMENT.read_text()
    assert [p.file.stem for p in programs() if p.code not in text or "\n".join(p.printed) not in text] == []


def test_every_program_says_which_check_it_is_about() -> None:
    assert sorted(SHOWS) == [p.file.stem for p in programs()]


@pytest.mark.parametrize("library", LIBRARIES[1:], ids=lambda library: library.name)
def test_every_reason_stands_in_the_document_with_its_program(library: Library) -> None:
    for package in library.packages:
        pytest.importorskip(package)
    text = DOCUMENT.read_text()
    of_library = {SHOWS[p.file.stem] for p in programs() if p.library == library.name}
    for name, reason in expected_of(library).items():
        assert reason[1:] in text
        assert {name, name.partition(":")[0]} & of_library, f"no small program shows {name}"
