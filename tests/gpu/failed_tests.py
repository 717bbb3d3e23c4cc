"""What is kept of each test of a recorded run: one line when it ends, and a folder where it fails.

`tests.gpu.record` names the folder of the bundle in `FOLDER`, and has NCCL and torch write their logs into `RUNNING`
below it. When a test ends, what they have written is its own: kept with what failed, and gone with what did not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ddpcheck.ranks.process_ties import RUN_VARIABLE
from tests.gpu.parts import keep

FOLDER = "DDPCHECK_GPU_BUNDLE"
"""The variable that names the folder of the bundle; without it nothing is kept."""

RUNNING = "running"
LINES = "tests.jsonl"
FAILED = "failed"

LARGEST = 4 << 20
"""Bytes of one file that are kept, of its end: NCCL says at its beginning what it has found, and that is long past."""

KEPT = (".json", ".jsonl", ".log", ".txt", ".evidence", ".xml", ".md")
"""Kinds of files that a test leaves in its own folder: reports, evidence, and what was printed."""

MEMORY = (
    ("nvidia-smi", "--query-gpu=index,name,memory.used,memory.total,utilization.gpu,pstate", "--format=csv"),
    ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory,gpu_uuid", "--format=csv"),
)


def logging_variables(bundle: Path) -> dict[str, str]:
    """What has NCCL and torch write down what they do, rank by rank, without a change of what they do."""
    running = bundle / RUNNING
    flight = str(running / "flight-of-rank-")
    return {
        FOLDER: str(bundle),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(running / "nccl-%p.log"),
        # Both names of the flight recorder: older ones, and those from torch 2.9 on.
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": flight,
        "TORCH_FR_DUMP_TEMP_FILE": flight,
    }


class FailedTests:
    """The pytest plugin of a recorded run."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle
        self._running = bundle / RUNNING
        self._running.mkdir(parents=True, exist_ok=True)
        self._failed: list[pytest.TestReport] = []
        self._folders: list[Path] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._line(event="begins", test=item.nodeid, at=time.time())
        self._failed, self._folders = [], []
        try:
            return (yield)
        finally:
            with contextlib.suppress(OSError):  # a full disk is no failure of the test
                self._put_away(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        for name in ("tmp_path", "project"):
            if report.failed and name in getattr(item, "funcargs", {}):
                given = item.funcargs[name]  # type: ignore[attr-defined]
                self._folders.append(given if isinstance(given, Path) else given.folder)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Also of the ranks' tests, whose reports are made elsewhere."""
        if report.failed:
            self._failed.append(report)
        if report.when == "call" or not report.passed:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            seconds = round(report.duration, 3)
            self._line(
                event="ended", test=report.nodeid, when=report.when, outcome=report.outcome, seconds=seconds, why=why
            )

    # --- what is kept

    def _line(self, **told: Any) -> None:
        with contextlib.suppress(OSError), (self._bundle / LINES).open("a") as file:
            keep(file, json.dumps(told) + "\n")

    def _put_away(self, item: pytest.Item) -> None:
        written = sorted(self._running.iterdir())
        if self._failed:
            folder = self._bundle / FAILED / slug(item.nodeid)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "report.txt").write_text("\n\n".join(told(report) for report in self._failed))
            (folder / "memory.txt").write_text(memory())
            for path in written:
                copy(path, folder / "logs" / path.name)
            for place in self._folders:
                for path in sorted(place.rglob("*")):
                    if path.is_file() and path.suffix in KEPT:
                        copy(path, folder / "files" / path.relative_to(place))
        for path in written:
            path.unlink(missing_ok=True)


def told(report: pytest.TestReport) -> str:
    """A report in full: with the stacks of the ranks, what they printed, and what ddpcheck knows of the run."""
    parts = [f"=== {report.nodeid}, {report.when}: {report.outcome}", report.longreprtext]
    parts += [f"--- {name}\n{content}" for name, content in report.sections]
    facts = getattr(report, "ddp", None)
    if facts:
        parts.append(f"--- ddp\n{json.dumps(facts, indent=1, default=str)}")
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(parts))


def memory() -> str:
    """Who has memory on the GPUs, right after the test."""
    said = []
    for command in MEMORY:
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
            said.append(ran.stdout + ran.stderr)
        except (OSError, subprocess.SubprocessError) as error:
            said.append(f"{' '.join(command)}: {error}\n")
    return "".join(said)


def slug(nodeid: str) -> str:
    """A name for a folder, which any file system takes, and which no other test has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", nodeid.partition("tests/")[2] or nodeid).strip("-")
    return plain[:150]


def copy(path: Path, target: Path) -> None:
    """Copy a file, or the end of a large one."""
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.stat().st_size <= LARGEST:
            shutil.copyfile(path, target)
            return
        with path.open("rb") as file:
            file.seek(-LARGEST, os.SEEK_END)
            target.write_bytes(file.read())


def begun(bundle: Path) -> list[str]:
    """The tests that have begun so far, in their order."""
    try:
        lines = [json.loads(line) for line in (bundle / LINES).read_text().splitlines()]
    except OSError:
        return []
    return [line["test"] for line in lines if line["event"] == "begins"]


def plugin() -> FailedTests | None:
    """The plugin, where this session is recorded; ranks, and what they are forked from, keep nothing themselves."""
    named = os.environ.get(FOLDER)
    return FailedTests(Path(named)) if named and RUN_VARIABLE not in os.environ else None
