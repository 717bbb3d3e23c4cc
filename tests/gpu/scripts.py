"""Programs that the tests on GPUs start: each has a limit of its own, and is ended with all that it has started.

What is left of a program keeps its memory on the GPU, and the tests after it meet that. A process group alone does not
hold all of it: torchrun starts every rank in a session of its own. So whatever a program starts is known by a variable
in its environment as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from ddpcheck.ranks.process_ties import tell_of_parents_end

MARK = "DDPCHECK_GPU_SCRIPT"
"""Names the programs that it is of, from the outermost on: a program of the tests may start one of its own."""

GRACE = 5.0
"""Seconds for a program that is asked to end, and for what it has started to end with it."""


class Ended(NamedTuple):
    """How a program has ended."""

    code: int
    output: str
    """Both of its streams, in the order in which they came."""
    seconds: float
    timed_out: bool = False
    left: tuple[str, ...] = ()
    """What it had started and left behind when it ended by itself; it has been ended since."""


def run(
    command: Sequence[str | os.PathLike[str]],
    cwd: Path,
    limit: float,
    environment: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = lambda line: None,
    silence: float | None = None,
) -> Ended:
    """Run a program to its end or its limit; ``tell`` gets every line as it comes.

    ``silence`` is another limit: so many seconds in which it prints nothing.
    """
    outer = dict(os.environ if environment is None else environment)
    own = uuid.uuid4().hex
    begun = time.monotonic()
    process = subprocess.Popen(
        [os.fspath(word) for word in command],
        cwd=cwd,
        env=outer | {MARK: f"{outer.get(MARK, '')}{own}/"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=_tied,
    )
    told = _Lines(process, tell)
    left: list[str] = []
    timed_out = False
    try:
        told.begin()
        timed_out = not _wait(process, told, begun + limit, silence)
        if not timed_out:
            left = _left_behind(own)
    finally:
        _end(process, own)
        told.finish()
    return Ended(process.returncode, told.text(), time.monotonic() - begun, timed_out, tuple(left))


def _tied() -> None:
    """In a child that is about to become the program: it is to end where the process of the tests is killed."""
    tell_of_parents_end(signal.SIGTERM)


class _Lines:
    """Takes a program's output in a thread of its own: whatever holds the pipe open, nobody waits for it."""

    def __init__(self, process: subprocess.Popen[str], tell: Callable[[str], None]) -> None:
        self._process, self._tell = process, tell
        self._lines: list[str] = []
        self.last = time.monotonic()
        self._thread = threading.Thread(target=self._take, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def _take(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed by then
            for line in self._process.stdout:
                self.last = time.monotonic()
                self._lines.append(line)
                self._tell(line)

    def finish(self) -> None:
        if self._thread.ident is not None:
            self._thread.join(GRACE)
        assert self._process.stdout is not None
        if not self._thread.is_alive():
            self._process.stdout.close()

    def text(self) -> str:
        return "".join(self._lines)


def _wait(process: subprocess.Popen[str], told: _Lines, end: float, silence: float | None) -> bool:
    """Whether it has ended by itself."""
    while process.poll() is None:
        now = time.monotonic()
        if now > end or (silence is not None and now - told.last > silence):
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    return True


def of(own: str) -> list[psutil.Process]:
    """The living processes of a program, wherever they have moved to."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if f"{own}/" in process.environ().get(MARK, "") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _left_behind(own: str) -> list[str]:
    """What there is of it a moment after its end: ranks end a little later than who has started them."""
    end = time.monotonic() + GRACE
    while (living := of(own)) and time.monotonic() < end:
        time.sleep(0.1)
    return [_described(process) for process in living]


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)


def _end(process: subprocess.Popen[str], own: str) -> None:
    """End all of it: asked first, so that it can tell what it was at."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    end = time.monotonic() + GRACE
    while (living := of(own)) and time.monotonic() < end:
        for one in living:
            with contextlib.suppress(psutil.Error):
                one.kill()
        time.sleep(0.05)
    process.wait()
