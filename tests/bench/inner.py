"""Programs that are measured from outside: inner pytest sessions, and torch's own harnesses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COPIED = ("body.py", "inner_steps.py", "inner_failing.py", "inner_properties.py", "peers.py", "peer_cases.py")
INI = "[pytest]\naddopts = -p no:cacheprovider -p no:randomly\npython_files = inner_*.py\n"

UNSET = ("PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS")


class MeasurementFailed(Exception):
    """What was to be measured did not come about; the text says what did."""


@dataclass
class Session:
    """An inner session that has ended."""

    begun: float
    """When its process was started."""
    ended: float
    tests: list[dict[str, Any]]
    """Name, and when it began, was reported and ended; in the order of running."""

    def seconds(self, name: str, ranks: int) -> list[float]:
        """What each test of this name and world size took, the whole of pytest's protocol for it."""
        marked = f"{ranks}ranks"
        return [
            t["ended"] - t["begun"]
            for t in self.tests
            if t["test"].startswith(f"{name}[") and marked in _ids(t["test"])
        ]


def _ids(test: str) -> list[str]:
    return test.split("[")[1].rstrip("]").split("-")


@dataclass
class PeerTest:
    """One test of a peer: its seconds, or why there are none."""

    seconds: float | None
    text: str = ""


class Workbench:
    """A folder with copies of what the measured programs consist of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            shutil.copy(HERE / name, folder / name)
        shutil.copy(HERE / "timing.py", folder / "conftest.py")
        (folder / "pytest.ini").write_text(INI)

    def session(self, file: str, must_pass: bool = True, **variables: object) -> Session:
        """Run one file in an inner session."""
        times = self.folder / f"times-{uuid.uuid4().hex}"
        environment = self._environment(BENCH_TIMES=times, **variables)
        begun = time.monotonic()
        process = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", file],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        ended = time.monotonic()
        tests = [json.loads(line) for line in times.read_text().splitlines()] if times.exists() else []
        if not tests or (must_pass and any(t["outcome"] != "passed" for t in tests)):
            raise MeasurementFailed(f"pytest {file} {variables} did not go as it must:\n{process.stdout[-3000:]}")
        return Session(begun, ended, tests)

    def peer(self, harness: str, ranks: int, tests: int, limit: float, **variables: object) -> list[PeerTest]:
        """Run tests of one of torch's harnesses; one that does not end within the limit has no seconds."""
        process = subprocess.Popen(
            [sys.executable, "peers.py", harness, str(ranks), str(tests)],
            cwd=self.folder,
            env=self._environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
            unfinished = f"ended before its last test: {output[-300:]}"
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            unfinished = f"did not end within {limit:g} s"
        lines = [line.removeprefix("TIMED ") for line in output.splitlines() if line.startswith("TIMED ")]
        timed = [json.loads(line) for line in lines]
        told = [PeerTest(t["seconds"] if t["passed"] else None, t["text"]) for t in timed]
        return told + [PeerTest(None, unfinished)] * (tests - len(told))

    def _environment(self, **variables: object) -> dict[str, str]:
        """The same for all: byte code is kept, as it usually is, sockets are on loopback, no other setting is made."""
        environment = {k: v for k, v in os.environ.items() if k not in UNSET}
        loopback = "lo" if sys.platform == "linux" else "lo0"
        own = {"GLOO_SOCKET_IFNAME": loopback, "TMPDIR": str(self.folder)}
        return environment | own | {name: str(value) for name, value in variables.items()}
