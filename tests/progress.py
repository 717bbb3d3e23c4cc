"""Waits for a process as long as it makes progress: a right program on a busy machine may take any time by the clock.

Progress is processor time, of the process and its descendants, and output. A command that hangs still looks at its
ranks a few times a second, so that a little processor time is no progress.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

PATIENCE = 120.0
"""Seconds without progress after which a process is given up."""
SHARE = 0.05
"""Of one processor: what a family of processes has to use over that time. A hung command uses about 0.01."""
MOST = 300.0 * max(2, os.cpu_count() or 1)
"""Seconds of processor time after which a process is given up, however busy it is."""
LOOKS = 40
"""In each stretch of patience."""


class NoProgress(AssertionError):
    """A process was given up; it still runs."""


class Process(Protocol):
    """What is waited for: a subprocess.Popen, or a command in a fork."""

    pid: int

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]: ...


class Progress:
    """What a process and its descendants have done so far; ``look`` raises where that has been too little, or too much.

    ``now`` and ``used`` say what time it is, and how much processor time the living ones have used.
    """

    def __init__(
        self,
        used: Callable[[], float],
        patience: float = PATIENCE,
        most: float = MOST,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now, self._used_by_the_living = now, used
        self._patience, self._most = patience, most
        self._since, self._last = now(), used()
        self._used = self._used_before = 0.0
        self._printed = 0

    def look(self, printed: int = 0) -> None:
        """``printed`` is how much output there is."""
        now, used = self._now(), self._used_by_the_living()
        self._used += max(0.0, used - self._last)  # what a process has used may be gone with it
        self._last = used
        if self._used > self._most:
            raise NoProgress(f"the process has used {self._used:.0f} s of processor time, and has not ended")
        if printed > self._printed or self._used - self._used_before >= SHARE * self._patience:
            self._since, self._used_before, self._printed = now, self._used, printed
        elif now - self._since > self._patience:
            raise NoProgress(
                f"the process has used {self._used - self._used_before:.1f} s of processor time in the last "
                f"{now - self._since:.0f} s, and has printed nothing"
            )


def processor_time(pid: int) -> float:
    """Seconds that a process and its descendants have used, with those of their children that have ended."""
    return sum(_used_by(one) for one in _family(pid))


def communicate(process: Process, input: Any = None, patience: float = PATIENCE, most: float = MOST) -> tuple[Any, Any]:
    """As the process's own, to its end; raise NoProgress where none is to be expected."""
    progress = Progress(lambda: processor_time(process.pid), patience, most)
    while True:
        try:
            return process.communicate(timeout=patience / LOOKS, **({} if input is None else {"input": input}))
        except subprocess.TimeoutExpired as waiting:
            input = None  # it has that
            progress.look(len(waiting.output or b"") + len(waiting.stderr or b""))


def wait_for(condition: Callable[[], bool], process: Process, patience: float = PATIENCE, period: float = 0.02) -> None:
    """Wait until a condition holds; raise NoProgress where the process makes none before."""
    progress = Progress(lambda: processor_time(process.pid), patience)
    looked = time.monotonic()
    while not condition():
        if time.monotonic() - looked > patience / LOOKS:
            looked = time.monotonic()
            progress.look()
        time.sleep(period)


def run(
    command: Sequence[str | bytes | Path],
    patience: float = PATIENCE,
    most: float = MOST,
    check: bool = False,
    input: Any = None,
    capture_output: bool = True,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    **how: Any,
) -> subprocess.CompletedProcess[Any]:
    """As subprocess.run, without a limit by the clock; where there is no progress, all of its processes are killed."""
    if capture_output:
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    if input is not None:
        how["stdin"] = subprocess.PIPE
    with subprocess.Popen(command, cwd=cwd, env=env, **how) as process:
        try:
            out, err = communicate(process, input, patience, most)
        except BaseException as error:
            kill(process.pid)
            if isinstance(error, NoProgress):
                raise NoProgress(f"{error}; it had printed\n{process.communicate()}") from None
            raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out, err)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def kill(pid: int) -> None:
    """End a process and its descendants."""
    for one in _family(pid):
        with contextlib.suppress(psutil.Error):
            one.kill()


def _family(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def _used_by(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(sum(times[:4]))  # user and system, its own and its children's
    return 0.0
