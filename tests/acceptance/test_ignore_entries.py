"""Entries of the settings: which findings one means."""

from __future__ import annotations

import pytest

from tests.acceptance.written_findings import finding, ignore

PATH = "examples/small/train.py"


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"file": PATH}, True),
        ({"file": "./" + PATH}, True),
        ({"file": "train.py"}, True),
        ({"file": "*.py"}, True),
        ({"file": "examples/*"}, True),
        ({"file": "examples/**/train.py"}, True),
        ({"file": "*/train.py"}, True),
        ({"file": "small/train.py"}, False),
        ({"file": "other.py"}, False),
        ({"file": "tests/*"}, False),
        ({"check": "parameter-sync"}, False),
        ({"line": 5}, True),
        ({"line": 6}, False),
        ({"function": "train"}, True),
        ({"function": "tr*"}, True),
        ({"function": "main"}, False),
        ({"subject": "net.weight"}, True),
        ({"subject": "net.*"}, True),
        ({"subject": "head.*"}, False),
    ],
)
def test_what_an_entry_means(given, means):
    """Check and file, and whatever else it names."""
    assert ignore(**{"file": PATH, **given}).means(finding(), PATH) == means


def test_a_path_as_the_report_shows_it():
    """What was run in a folder of the project is shown from there; what has a bracket in it is itself."""
    assert ignore(file="small/train.py").means(finding(file="small/train.py"), PATH)
    assert ignore(subject="samples[3]").means(finding(subject="samples[3]"), PATH)


@pytest.mark.parametrize(
    ("file", "means"),
    [
        (".hydra/*", True),
        ("./.hydra/*", True),
        ("outputs/day/.hydra/*", True),
        ("*.yaml", False),
        (".hydra/config.yaml", False),
        ("hydra/*", False),
    ],
)
def test_files_that_a_finding_is_about(file, means):
    """An entry for a folder means what is said of its files, wherever it lies; one for some of the files does not."""
    written = ("outputs/day/.hydra/config.yaml", "outputs/day/.hydra/config.pickle")
    assert ignore(file=file).means(finding(), PATH, written) == means
    assert not ignore(file=file).means(finding(), PATH, (*written, "last.pt"))


@pytest.mark.parametrize(("file", "means"), [("*", True), ("train.py", False)])
def test_a_finding_without_a_line(file, means):
    """Only what means every file means it."""
    assert ignore(file=file).means(finding(line=None), "") == means
    assert not ignore(file="*", line=5).means(finding(line=None), "")


@pytest.mark.parametrize(
    ("given", "words"),
    [({}, "ignore entry 1 (gradient-sync in train.py)"), ({"line": 5, "subject": "w"}, "train.py, line 5, subject w)")],
)
def test_how_it_is_named(given, words):
    """By its number, and what it means."""
    assert words in str(ignore(**given))
