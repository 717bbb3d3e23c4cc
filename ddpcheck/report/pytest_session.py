"""What a session has shown: which invariants were checked how often, on the terminal and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ddpcheck.checks.registry import checks
from ddpcheck.report import report_files
from ddpcheck.vocabulary.versions import installed
from ddpcheck.vocabulary.wording import NOT_CHECKED, count, listing


class SessionReport:
    """The pytest plugin, in the main process, that adds up what the reports of ddp tests carry."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tests: list[dict[str, Any]] = []
        self.target: Path | None = None
        """Where the report is to go."""
        self.lost = ""
        """Why it could not be written."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        facts = getattr(report, "ddp", None)
        if facts is not None:
            self.tests.append({"nodeid": report.nodeid, "outcome": report.outcome, **facts})

    # --- the invariants

    def checks(self) -> dict[str, dict[str, Any]]:
        """Every check: its status, how often it was checked, at risk and violated, and why it could not be."""
        blank = {"status": NOT_CHECKED, "checked": 0, "at_risk": 0, "violated": 0, "skipped_because": None}
        table: dict[str, dict[str, Any]] = {
            check: {**blank, "coverage": {"compared": 0, "of": 0, "unit": "assertions"}} for check in checks()
        }
        for test in self.tests:
            for run in test["checks"]:
                row = table[run["check"]]
                row["coverage"]["of"] += 1
                if run["status"] == NOT_CHECKED:
                    row["skipped_because"] = row["skipped_because"] or run["findings"][0]["found"]
                    continue
                row["checked"] += 1
                row["at_risk"] += run["status"] == "at-risk"
                row["violated"] += run["status"] == "violated"
        for row in table.values():
            row["coverage"]["compared"] = row["checked"]
            if row["checked"]:
                row["status"] = "violated" if row["violated"] else "at-risk" if row["at_risk"] else "held"
        return table

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._invariants(terminalreporter)
        notes = gpu_notes(self.tests)
        if notes:
            terminalreporter.section("GPUs", sep="-")
        for note in notes:
            terminalreporter.write_line(note)
        if self.lost:
            terminalreporter.write_line(f"--ddp-report {self.target} {self.lost}", red=True)

    def _invariants(self, terminalreporter: pytest.TerminalReporter) -> None:
        asked = {check: row for check, row in self.checks().items() if row["checked"] or row["skipped_because"]}
        if not asked:
            return
        ranks = sum(test["world_size"] for test in self.tests)
        terminalreporter.section(
            f"invariants, as {count(len(self.tests), 'ddp test')} checked them in {count(ranks, 'rank')}", sep="-"
        )
        width = max(len(check) for check in asked)
        terminalreporter.write_line(f"{'':<{width}}  {'held':>6}  {'at risk':>7}  {'violated':>8}")
        for check, row in asked.items():
            at_risk, violated = row["at_risk"], row["violated"]
            held = row["checked"] - at_risk - violated
            line = f"{check:<{width}}  {held:>6}  {at_risk:>7}  {violated:>8}"
            if row["skipped_because"]:
                where = " everywhere" if row["checked"] else ""
                line += "  " + textwrap.shorten(f"not checked{where}: {row['skipped_because']}", 150)
            whole = not violated and not at_risk
            terminalreporter.write_line(
                line, red=violated > 0, yellow=at_risk > 0 and not violated, green=held > 0 and whole
            )

    # --- the file

    def pytest_configure(self, config: pytest.Config) -> None:
        if path := config.getoption("ddp_report") or config.getini("ddp_report"):
            self.target = Path(path).absolute()
            try:
                self.target.parent.mkdir(parents=True, exist_ok=True)
                report_files.check_writable(self.target)
            except (OSError, report_files.Unwritable) as error:
                raise pytest.UsageError(f"--ddp-report: {error}") from None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.target is not None:
            self.lost = report_files.failure_in_place(self.target, partial(self._write, self.target))
            if self.lost and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def _write(self, target: Path) -> None:
        report_files.write(target, json.dumps(self.document(), indent=1, default=str) + "\n")

    def document(self) -> dict[str, Any]:
        """The session as plain data; see docs/report.md for the fields."""
        return {
            "schema": 3,
            "tests": self.tests,
            "checks": self.checks(),
            "notes": gpu_notes(self.tests),
            "versions": installed(),
        }


def gpu_notes(tests: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader has to know of how the tests on GPUs were run: on simulated ones, or several ranks on one."""
    simulated = sum(1 for test in tests if test.get("simulated"))
    sharing = sum(1 for test in tests if test.get("nccl_shares_gpu"))
    notes = []
    if simulated:
        notes.append(
            f"{count(simulated, 'test')} for GPUs ran on simulated devices, with gloo in the place of NCCL: that shows "
            "where tensors were, and nothing of NCCL, streams, memory or kernels"
        )
    if sharing:
        ours = sorted({f"{name}={value}" for test in tests for name, value in test.get("nccl_variables", {}).items()})
        done = f"ddpcheck set {listing(ours, len(ours))} for them" if ours else "the caller's environment allows that"
        notes.append(f"{count(sharing, 'test')} had several NCCL ranks on one GPU: {done}")
    return notes
