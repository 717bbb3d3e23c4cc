"""Runs the self-tests in a pytest session of their own, and follows it against a deadline.

The session is like any user's: ranks, process groups and verdicts come from
the plugin itself. What else is installed or configured is kept out of it, so
that what fails is the stack.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpcheck.doctor import torch_build
from ddpcheck.doctor.advice import PRINTED, advice_for
from ddpcheck.doctor.child_processes import ending, running, stacks_of
from ddpcheck.doctor.facts import SelfTest, Stack, Unknown
from ddpcheck.doctor.self_test_progress import VARIABLE

BODIES = Path(__file__).with_name("self_test_bodies.py")

TESTS = {
    "test_gloo_on_cpu": ("gloo", "cpu"),
    "test_nccl_on_cuda": ("nccl", "cuda"),
    "test_gloo_on_cuda": ("gloo", "cuda"),
}
"""The backend and the device of each."""

_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import pytest; sys.exit(pytest.main(sys.argv[2:]))"
_NOT_OURS = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_CURRENT_TEST", "PYTEST_XDIST", "COV_CORE", "COVERAGE_PROCESS")

STARTING = "importing torch"


class Session:
    """One run of the self-tests; ``tell`` is called with what it is at and the number of tests that have ended."""

    def __init__(self, bodies: Path, deadline: float, tell: Callable[[str, int], None]) -> None:
        self._bodies, self._deadline, self._tell = bodies, deadline, tell
        self._at = "starting pytest"
        self._running = ""
        self._phases: dict[str, list[dict[str, Any]]] = {}
        self._warnings: list[str] = []
        self._begun = time.monotonic()

    def run(self) -> Stack:
        """Return when the session has ended, or at the deadline, with nothing of it left."""
        with tempfile.TemporaryDirectory(prefix="ddpcheck-doctor-", ignore_cleanup_errors=True) as folder:
            broken_off = self._follow(Path(folder))
        tests = tuple(self._outcome(name, broken_off) for name in TESTS)
        return Stack(tests=tests, ranks_start=self._ranks_start(tests), seconds=time.monotonic() - self._begun)

    # --- the session

    def _follow(self, folder: Path) -> str:
        """What is to be told of the session if it did not end as it should: where it was stuck, or how it ended."""
        (folder / "pytest.ini").write_text("[pytest]\n")
        reading, writing = os.pipe()
        log = folder / "pytest.log"
        with open(reading, "rb", buffering=0) as lines, log.open("wb") as out:
            options = {"cwd": folder, "env": _environment(writing), "stdout": out, "stderr": subprocess.STDOUT}
            try:
                session = running(self._arguments(folder), pass_fds=[writing], **options)
                with session as process:
                    os.close(writing)
                    writing = -1
                    ended = self._listen(lines, process)
                    stuck = "" if ended else stacks_of(process, log)
            finally:
                if writing >= 0:
                    os.close(writing)
        if not ended:
            seconds = self._deadline - self._begun
            return f"the self-test did not end within {seconds:.1f} s; it was at: {self._at}\n{stuck}"
        return f"pytest {ending(process.returncode)} while it was at: {self._at}\n{log.read_text(errors='replace')}"

    def _arguments(self, folder: Path) -> list[str]:
        plugins = [
            word for name in ("ddpcheck.pytest_plugin", "ddpcheck.doctor.self_test_progress") for word in ("-p", name)
        ]
        options = ["-c", str(folder / "pytest.ini"), "--rootdir", str(folder), "--basetemp", str(folder / "tmp")]
        options += ["--noconftest", "-p", "no:cacheprovider"]
        return [sys.executable, "-c", _CODE, json.dumps(sys.path), *plugins, *options, str(self._bodies)]

    def _listen(self, lines: Any, process: subprocess.Popen[bytes]) -> bool:
        """Take what it tells until it has ended; False where the deadline came first."""
        received = b""
        with selectors.DefaultSelector() as selector:
            selector.register(lines, selectors.EVENT_READ)
            while (left := self._deadline - time.monotonic()) > 0:
                if not selector.select(min(left, 0.5)):
                    if process.poll() is not None:
                        return True  # a child of it may hold the pipe open
                    continue
                data = lines.read(1 << 16)
                if not data:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(max(0.0, self._deadline - time.monotonic()))
                    return process.poll() is not None
                *complete, received = (received + data).split(b"\n")
                for line in complete:
                    self._take(json.loads(line))
        return False

    def _take(self, said: dict[str, Any]) -> None:
        match said["event"]:
            case "collected":
                self._at = STARTING
            case "started":
                self._running = said["test"]
                self._at = f"{_named(said['test'])}: {'ranks at work' if self._phases else STARTING}"
            case "phase":
                self._phases.setdefault(said["test"], []).append(said)
            case "warning":
                self._warnings.append(said["text"])
        ended = sum(phases[-1]["phase"] == "teardown" for phases in self._phases.values())
        self._tell(self._at, ended)

    # --- what came of it

    def _outcome(self, name: str, broken_off: str) -> SelfTest:
        backend, device = TESTS[name]
        phases = self._phases.get(name, [])
        failed = [p for p in phases if p["outcome"] == "failed"]
        skipped = [p for p in phases if p["outcome"] == "skipped"]
        seconds = sum(p["seconds"] for p in phases)
        if failed:
            text, printed = failed[0]["text"], failed[0]["printed"]
        elif skipped:
            reason = skipped[0]["text"].removeprefix("Skipped: ")
            return SelfTest(backend=backend, device=device, outcome="untestable", text=reason)
        elif phases and phases[-1]["phase"] == "teardown":
            return SelfTest(backend=backend, device=device, outcome="passed", seconds=seconds)
        elif name != (self._running or next(iter(TESTS))):
            return SelfTest(backend=backend, device=device, outcome="untestable", text="it was not reached")
        else:
            text, printed = broken_off, ""
        return SelfTest(
            backend=backend,
            device=device,
            outcome="failed",
            seconds=seconds,
            text=text + (PRINTED + printed if printed else ""),
            advice=advice_for(text, torch_build.file()),
        )

    def _ranks_start(self, tests: tuple[SelfTest, ...]) -> str | Unknown:
        if not any(test.outcome == "passed" for test in tests):
            return Unknown(why="no self-test passed")
        for text in self._warnings:
            if "start as interpreters of their own" in text:
                return f"as interpreters of their own: {text.partition('milliseconds): ')[2] or text}"
        return "forked, in milliseconds, from one process that has imported torch"


def _environment(relay: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    return kept | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONFAULTHANDLER": "1",  # a process that is ended for being stuck says where it was
        VARIABLE: str(relay),
    }


def _named(test: str) -> str:
    backend, device = TESTS.get(test, (test, "cpu"))
    return SelfTest(backend=backend, device=device, outcome="passed").name
