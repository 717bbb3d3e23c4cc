"""The pages of the docs: there, small, current in form, and without a name of the machine that made them."""

from __future__ import annotations

import re

import pytest

from tests.programs.example_pages import PAGES, PROGRAMS, neutral, restyled

NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))
WORDS = {"deadlock": "HUNG", "diverged": "VIOLATED", "held": "HELD"}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_of_the_docs(name):
    """What its program is about is its verdict."""
    text = (PAGES / f"{name}.html").read_text(encoding="utf-8")
    assert f">{WORDS[name]}</span>" in text
    assert f"{name}.py, 4 ranks" in text
    assert "timeline-data" in text
    assert len(text) < 300_000
    assert not re.findall(r"/(?:tmp|root|home|work|Users)/|site-packages|\.pyenv|\.venv", text)


def test_a_page_of_the_docs_has_the_style_of_today():
    """Whoever changes how a page looks changes these: python -m tests.programs.example_pages --restyle."""
    for name in NAMES:
        text = (PAGES / f"{name}.html").read_text(encoding="utf-8")
        assert restyled(text) == text, name


def test_names_of_the_machine_are_replaced():
    """Folders by neutral ones."""
    import sys

    text = neutral(f"{sys.prefix}/lib/x.py /some/where/job.py", "/some/where")
    assert text == "/python/lib/x.py /job/job.py"
