"""Pytest sessions inside of tests: a project in a folder, a run of it, and what each test's report said."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

from tests.progress import PATIENCE, communicate
from tests.report.schema_validation import validate, validate_facts

RECORDER = '''
"""Writes every report of the session, as it is logged, to a file."""
import json, os, time
import pytest

def pytest_runtest_logreport(report):
    if "RANK" in os.environ:  # of a subtest; it is logged in the main process, too
        return
    entry = {
        "name": report.nodeid.split("::", 1)[1], "when": report.when, "outcome": report.outcome,
        "text": report.longreprtext if not isinstance(report.longrepr, tuple) else report.longrepr[2],
        "sections": [list(s) for s in report.sections], "xfail": getattr(report, "wasxfail", None),
        "at": time.monotonic(), "ddp": getattr(report, "ddp", None), "properties": report.user_properties,
    }
    with open(os.environ["RECORD"], "a") as file:
        file.write(json.dumps(entry, default=str) + "\\n")

def pytest_warning_recorded(warning_message, nodeid):
    if "RANK" in os.environ:  # as in a worker of pytest-xdist, the main process hears of it too
        return
    with open(os.environ["RECORD"], "a") as file:
        file.write(json.dumps({"warning": str(warning_message.message), "name": nodeid.split("::", 1)[-1],
                               "category": warning_message.category.__name__}) + "\\n")
'''

# Where one of these is set, hypothesis keeps no database and draws the same examples each time.
CI = {"CI", "BUILDKITE", "CIRCLECI", "CIRRUS_CI", "CODEBUILD_BUILD_ID", "GITHUB_ACTIONS", "GITLAB_CI"}
CI |= {"HEROKU_TEST_RUN_ID", "TEAMCITY_VERSION", "TF_BUILD", "bamboo.buildKey"}


ROOT = Path(__file__).parents[1]

# Plugins that the suite runs under, or has for the matrix alone, have no business in inner sessions that do not ask.
BLOCKED = ("randomly", *re.findall(r"-pno:(\w+)", (ROOT / "pyproject.toml").read_text()))


@dataclass
class Seen:
    """What the reports of one test said."""

    name: str
    phases: dict[str, str] = field(default_factory=dict)
    """setup, call, teardown: each phase's outcome."""
    text: str = ""
    output: str = ""
    at: float = 0.0
    ddp: dict[str, Any] = field(default_factory=dict)
    properties: list[Any] = field(default_factory=list)
    xfail: str | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """One word, as pytest's summary would count it."""
        if self.phases.get("setup") == "failed" or self.phases.get("teardown") == "failed":
            return "error" if self.phases.get("call", "passed") != "failed" else "failed"
        decisive = self.phases.get("call", self.phases.get("setup", "missing"))
        if self.xfail is not None:
            return {"skipped": "xfailed", "passed": "xpassed"}.get(decisive, decisive)
        return decisive


@dataclass
class Ran:
    """A finished inner session."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    tests: dict[str, Seen]
    started: float

    def __getitem__(self, name: str) -> Seen:
        assert name in self.tests, (
            f"{name} was not reported; there are {sorted(self.tests)}\n{self.stdout}{self.stderr}"
        )
        return self.tests[name]


def wait_until(condition: Callable[[], bool], patience: float = 60.0) -> bool:
    """Wait until a condition holds; whether it came to that."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def interruptible() -> None:
    """In a child that is about to become another program: SIGINT and SIGHUP end it, even if this suite ignores them.

    A shell ignores the first in what it starts in the background, and nohup the second.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class InnerProject:
    """A folder with test files, and the sessions that run them; ``plugins`` are let in, of those that are blocked."""

    def __init__(self, folder: Path, plugins: Sequence[str] = ()) -> None:
        self.folder, self.plugins = folder, plugins
        folder.mkdir(parents=True, exist_ok=True)
        self.write("recorder.py", RECORDER)
        self.write("pytest.ini", "[pytest]\n")
        self.report: Path | None = None
        """The file of the last session that was asked for ``--ddp-report``."""
        self.temp = folder / "tmp"
        self.temp.mkdir(exist_ok=True)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    def environment(self, **extra: str) -> dict[str, str]:
        outer = ("PYTEST", "COV_", "COVERAGE", "RANK", "LOCAL_", "WORLD_SIZE", "DDPCHECK")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(outer) and k not in CI}
        record = str(self.folder / "record.jsonl")
        # The package of this checkout, also where another one is installed.
        path = os.pathsep.join([str(self.folder), str(ROOT)])
        return clean | {"RECORD": record, "TMPDIR": str(self.temp), "PYTHONPATH": path} | extra

    def command(self, *args: str) -> list[str]:
        blocked = [f"-pno:{name}" for name in BLOCKED if name not in self.plugins]
        return [sys.executable, "-m", "pytest", "-p", "recorder", *blocked, *args]

    def start(self, *args: str, **environment: str) -> subprocess.Popen[str]:
        """Start a session and leave it running, for tests that interfere with it."""
        (self.folder / "record.jsonl").unlink(missing_ok=True)
        if "--ddp-report" in args:
            self.report = self.folder / args[args.index("--ddp-report") + 1]
        return subprocess.Popen(
            self.command(*args),
            cwd=self.folder,
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            preexec_fn=interruptible,
        )

    def run(self, *args: str, patience: float = PATIENCE, **environment: str) -> Ran:
        """Run a session to its end."""
        begun = time.monotonic()
        process = self.start(*args, **environment)
        try:
            out, err = communicate(process, patience=patience)
        finally:
            process.kill()
        return Ran(process.returncode, out, err, time.monotonic() - begun, self.seen(), begun)

    def seen(self) -> dict[str, Seen]:
        """What has been reported so far, by the part of the test's id behind the file."""
        if self.report is not None and self.report.exists():
            validate(json.loads(self.report.read_text()), "tests")
        tests: dict[str, Seen] = {}
        record = self.folder / "record.jsonl"
        for line in record.read_text().splitlines() if record.exists() else ():
            entry = json.loads(line)
            one = tests.setdefault(entry["name"], Seen(entry["name"]))
            if "warning" in entry:
                one.warnings.append(f"{entry['category']}: {entry['warning']}")
                continue
            one.phases[entry["when"]] = entry["outcome"]
            if entry["ddp"]:
                validate_facts(entry["ddp"])
            one.ddp = entry["ddp"] or one.ddp
            one.properties = entry["properties"] or one.properties
            one.xfail = entry["xfail"] if entry["xfail"] is not None else one.xfail
            if entry["outcome"] != "passed" or not one.text:
                one.text = entry["text"]
            one.output = "\n".join(f"{name}\n{content}" for name, content in entry["sections"]) or one.output
            if entry["when"] == "call" or entry["outcome"] == "failed":
                one.at = entry["at"]
        return tests

    def leftover_processes(self) -> list[str]:
        """Command lines of living processes of this project's sessions, wherever they have moved to."""
        import psutil

        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TMPDIR") == str(self.temp) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
            except (psutil.Error, OSError):
                continue
        return found

    def leftover_folders(self) -> list[str]:
        return [path.name for path in self.temp.glob("ddpcheck-*")]
