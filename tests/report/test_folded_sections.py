"""Sections of a log that are closed until somebody opens them."""

from __future__ import annotations

import io
import re

from ddpcheck.report import terminal_report
from ddpcheck.report.folded_sections import folding
from tests.report.verdicts import VIOLATED


def shown(service):
    """The report on a service."""
    stream = io.StringIO()
    terminal_report.show(VIOLATED, stream, fold=folding(service, stream))
    return stream.getvalue()


def test_github_gets_groups():
    """The tables of the checks; findings and notes are in the open."""
    text = shown("github")
    assert re.findall("(?m)^::.*$", text) == [
        *("::group::checks", "::endgroup::"),
        *("::group::not checked", "::endgroup::"),
    ]
    inside = text.partition("::group::checks")[2].partition("::endgroup::")[0]
    assert "initial-broadcast" in inside
    assert "1. error  reducer-coverage" in text.partition("::group::")[0]
    assert "Of 36 optimizer steps" in text.rpartition("::endgroup::")[2]


def test_gitlab_gets_sections():
    """Each with a name that its end has too, and closed at first."""
    text = shown("gitlab")
    mark = "\x1b\\[0Ksection_(start|end):\\d+:(\\w+)(\\[collapsed=true\\])?\r\x1b\\[0K(.*)\n"
    assert re.findall(mark, text) == [
        ("start", "ddpcheck_checks", "[collapsed=true]", "checks"),
        ("end", "ddpcheck_checks", "", ""),
        ("start", "ddpcheck_not_checked", "[collapsed=true]", "not checked"),
        ("end", "ddpcheck_not_checked", "", ""),
    ]


def test_elsewhere_nothing_folds():
    """The report is the same as without it; what folds has all that --verbose has of the checks."""
    plain, verbose = io.StringIO(), io.StringIO()
    terminal_report.show(VIOLATED, plain)
    terminal_report.show(VIOLATED, verbose, verbose=True)
    assert shown(None) == plain.getvalue()
    assert "\nchecks\n" in verbose.getvalue()
    unfolded = re.sub("(?m)^::endgroup::\n", "", shown("github")).replace("::group::", "")
    assert unfolded == verbose.getvalue()
