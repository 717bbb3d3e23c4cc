"""Ends a session with the table of the documents' claims, if tests of claims ran in it.

Each test's report names its file, and the file its claim; so the main process
of pytest-xdist, which collects no tests, knows as much as any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.claims.claims import CLAIMS, Claim
from tests.claims.table import HERE, Line, claim_of, lines, written_tests

COLOURS = {
    "FAILED": "red",
    "NO TEST": "red",
    "skipped": "yellow",
    "partly run": "yellow",
    "refuted": "cyan",
    "refuted in part": "cyan",
}


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ClaimsTable(), "claims-table")


class ClaimsTable:
    """Gathers what became of the claims' tests, and shows it at the end."""

    def __init__(self, folder: Path = HERE, claims: Iterable[Claim] = CLAIMS) -> None:
        self.tests = written_tests(folder)
        self.claims = tuple(claims)
        self.ran = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(report.nodeid, "failed")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            reason = getattr(report, "wasxfail", None) or (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            )
            self._note(report.nodeid, "skipped", reason.removeprefix("Skipped: "))
        elif report.failed or report.when == "call":
            self._note(report.nodeid, report.outcome)

    def _note(self, nodeid: str, result: str, reason: str = "") -> None:
        path, *names = nodeid.partition("[")[0].split("::")
        file = path.rpartition("/")[2]
        number = claim_of(file)
        if number not in self.tests:
            return
        self.ran = True
        tests = self.tests[number]
        name = names[-1] if names else "the file itself"
        tests.results.setdefault(f"{file}::{name}", set()).add(result)
        if reason:
            tests.reasons[reason] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.ran:
            return
        table = lines(self.tests, self.claims)
        terminalreporter.section("claims", sep="-")
        for line in table:
            if line.outcome != "not run":
                self._show(terminalreporter, line)
        idle = [line.claim.number for line in table if line.outcome == "not run"]
        if idle:
            terminalreporter.write_line(f"not run: {_spans(idle)}")

    def _show(self, terminalreporter: pytest.TerminalReporter, line: Line) -> None:
        claim = line.claim
        colour = {COLOURS.get(line.outcome, "green"): True}
        terminalreporter.write(f"{claim.number:>2}  {' '.join(claim.documents):<8}  ")
        terminalreporter.write(f"{line.outcome:<15}", **colour)
        terminalreporter.write_line(f"  {claim.claim}")
        if line.why:
            terminalreporter.write_line(" " * 31 + line.why)


def _spans(numbers: list[int]) -> str:
    """1, 3 and 7-9, as few words as will do."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join("-".join(map(str, span)) for span in spans)
