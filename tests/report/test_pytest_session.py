"""What a session adds up: how often each check was checked, and where there was nothing to judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from ddpcheck.report.pytest_session import SessionReport
from tests.inner import InnerProject


def run(check: str, status: str, found: str = "") -> dict[str, Any]:
    """One time that a check was made, as a test's report carries it."""
    return {"check": check, "status": status, "findings": [{"found": found}] if found else [], "where": None}


def session(*runs: dict[str, Any]) -> SessionReport:
    """A session of one test."""
    report = SessionReport(cast(pytest.Config, None))
    report.tests.append({"nodeid": "test_it.py::test", "world_size": 2, "checks": list(runs)})
    return report


class Lines:
    """A terminal that keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.green: list[str] = []

    def section(self, title: str, **_: Any) -> None:
        self.lines.append(title)

    def write_line(self, line: str, green: bool = False, **_: Any) -> None:
        self.lines.append(line)
        if green:
            self.green.append(line)


@pytest.mark.parametrize(
    ("target", "code", "told"),
    [
        (
            "/dev/full",
            3,
            "--ddp-report /dev/full could not be written: cannot write /dev/full: no space left on device",
        ),
        ("file/report.json", 4, "--ddp-report: [Errno "),
        ("folder", 4, "--ddp-report: cannot write "),
        ("/proc/report.json", 4, "--ddp-report: cannot write /proc/report.json"),
        ("new/report.json", 0, ""),
    ],
)
def test_a_report_that_cannot_be_written_is_told_of(tmp_path: Path, target: str, code: int, told: str) -> None:
    """At once where that can be known; at the end, the summary is there all the same, and the session has failed."""
    project = InnerProject(tmp_path)
    project.write("test_it.py", "def test_it(): pass")
    project.write("folder/file", "")
    project.write("file", "")
    ran = project.run(f"--ddp-report={target}")
    assert ran.code == code
    assert told in ran.stdout + ran.stderr
    assert ("1 passed" in ran.stdout) == (code != 4)


def test_what_could_not_be_judged_is_not_held() -> None:
    """A check that found nothing to judge counts neither as held nor as violated, and the reason is kept and shown."""
    report = session(run("checkpoint-atomic-save", "not-checked", "none: CUDA does not work in a copy"))

    row = report.checks()["checkpoint-atomic-save"]
    terminal = Lines()
    report.pytest_terminal_summary(cast(pytest.TerminalReporter, terminal))

    assert row == {
        "status": "not-checked",
        "checked": 0,
        "coverage": {"compared": 0, "of": 1, "unit": "assertions"},
        "at_risk": 0,
        "violated": 0,
        "skipped_because": "none: CUDA does not work in a copy",
    }
    shown = "checkpoint-atomic-save       0        0         0  not checked: none: CUDA does not work in a copy"
    assert shown in terminal.lines
    assert terminal.green == []


def test_warnings_are_counted_apart() -> None:
    """A check with warnings only is at risk, and its line is not green; one error, and it is violated."""
    report = session(run("batch-count", "held"), run("batch-count", "at-risk", "luck"))
    terminal = Lines()
    report.pytest_terminal_summary(cast(pytest.TerminalReporter, terminal))

    assert report.checks()["batch-count"]["status"] == "at-risk"
    assert "batch-count       1        1         0" in terminal.lines
    assert terminal.green == []
    broken = session(run("batch-count", "at-risk", "luck"), run("batch-count", "violated", "not so"))
    assert broken.checks()["batch-count"]["status"] == "violated"


def test_what_was_judged_elsewhere_is_counted() -> None:
    """Where another test has checked it, that counts, and the reason stays."""
    report = session(
        run("checkpoint-atomic-save", "held"),
        run("checkpoint-atomic-save", "not-checked", "none: so it is"),
        run("gradient-sync", "violated", "other gradients"),
    )

    rows = report.checks()

    assert rows["checkpoint-atomic-save"]["status"] == "held"
    assert rows["checkpoint-atomic-save"]["checked"] == 1
    assert rows["checkpoint-atomic-save"]["coverage"] == {"compared": 1, "of": 2, "unit": "assertions"}
    assert rows["gradient-sync"]["violated"] == 1
    assert rows["initial-broadcast"]["skipped_because"] is None
