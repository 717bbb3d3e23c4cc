"""docs/libraries.md has every reason and every small program, as they are; the tables in it come from runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_programs import SHOWS, programs
from table import LIBRARIES, expected_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "libraries.md"


def test_every_program_stands_in_the_document() -> None:
    text = DOCUMENT.read_text()
    assert [p.file.stem for p in programs() if p.code not in text or "\n".join(p.printed) not in text] == []


def test_every_program_says_which_check_it_is_about() -> None:
    assert sorted(SHOWS) == [p.file.stem for p in programs()]


@pytest.mark.parametrize("library", LIBRARIES[1:], ids=lambda library: library.name)
def test_every_reason_stands_in_the_document_with_its_program(library: object) -> None:
    for package in library.packages:  # type: ignore[attr-defined]
        pytest.importorskip(package)
    text = DOCUMENT.read_text()
    of_library = {SHOWS[p.file.stem] for p in programs() if p.library == library.name}  # type: ignore[attr-defined]
    for name, reason in expected_of(library).items():  # type: ignore[arg-type]
        assert reason[1:] in text
        check, _, situation = name.partition(":")
        assert {name, check} & of_library, f"no small program shows {name}"
