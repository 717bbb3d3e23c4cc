"""Ends a session with the table of the documents' claims, if tests of claims ran in it.

Each test's report names its file, and the file its claim; so the main process
of pytest-xdist, which collects no tests, knows as much as any other. What its
workers collected it hears from xdist, and what they deselected from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
    watch(config, ClaimsTable())


def watch(config: pytest.Config, table: ClaimsTable) -> None:
    """Have this session end with a table; a worker of pytest-xdist tells what it has deselected."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Deselected(), "claims-deselected")
    else:
        config.pluginmanager.register(table, "claims-table")


class Deselected:
    """In a worker: tells the main process which tests were deselected, as only those who collect can know."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        self.ids += [item.nodeid for item in items if _place(item.nodeid) is not None]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        session.config.workeroutput[DESELECTED] = self.ids  # type: ignore[attr-defined]


DESELECTED = "claims-deselected"


def _place(nodeid: str) -> tuple[int, str] | None:
    """The claim of a test, and its ``file::function``."""
    path, *names = nodeid.partition("[")[0].split("::")
    file = path.rpartition("/")[2]
    number = claim_of(file)
    return None if number is None else (number, f"{file}::{names[-1] if names else 'the file itself'}")


class ClaimsTable:
    """Gathers what became of the claims' tests, and shows it at the end."""

    def __init__(self, folder: Path = HERE, claims: Iterable[Claim] = CLAIMS) -> None:
        self.tests = written_tests(folder)
        self.claims = tuple(claims)
        self.known: set[str] = set()
        """Tests that were collected, whether or not they were deselected then."""
        self.begun: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.known.update(item.nodeid for item in session.items)

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        self.known.update(item.nodeid for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        self.known.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.known.update(getattr(node, "workeroutput", {}).get(DESELECTED, ()))

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
        place = _place(nodeid)
        if place is None or place[0] not in self.tests:
            return
        self.begun.add(nodeid)
        number, name = place
        tests = self.tests[number]
        tests.results.setdefault(name, set()).add(result)
        if reason:
            tests.reasons[reason] += 1

    def _note_what_is_left(self, arguments: Iterable[str]) -> None:
        for nodeid in self.known - self.begun:
            self._left_out(nodeid)
        for argument in arguments:
            if "[" in argument:  # asked for by its name, and its siblings were not even collected
                self._left_out(argument)

    def _left_out(self, nodeid: str) -> None:
        place = _place(nodeid)
        if place is not None and place[0] in self.tests:
            self.tests[place[0]].left_out[place[1]] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.begun:
            return
        self._note_what_is_left(terminalreporter.config.args)
        table = lines(self.tests, self.claims)
        terminalreporter.section("claims", sep="-")
        terminalreporter.ensure_newline()  # else write_line does it, which may be in the middle of a line
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
