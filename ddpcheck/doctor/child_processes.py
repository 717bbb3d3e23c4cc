"""Child processes: none is lost to an interrupt, one that does not end says where it is stuck, and how one ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from ddpcheck.doctor.advice import innermost_of_last
from ddpcheck.ranks.process_ties import RUN_VARIABLE
from ddpcheck.vocabulary.wording import signal_name

PATIENCE = 1.0
"""Seconds for the stacks to be written."""


def stacks_of(process: subprocess.Popen[bytes], log: Path) -> str:
    """The innermost calls of a pytest session, or rather of the processes below it; all of them are ended by it.

    pytest has Python's faulthandler write the stack of a process that aborts:
    the session's to ``log``, that of the process which ranks come from to a
    log in its runtime folder. The session stands still meanwhile: it would
    clear up what its children have written.
    """
    found = []
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        below = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGSTOP)
        folders = {folder for child in below if (folder := _runtime_folder(child))}
        parents = {child.ppid() for child in below}
        for child in below:
            with contextlib.suppress(psutil.Error):
                # Not the keeper in between: it is stuck nowhere, and ends as the one that it keeps.
                if child.ppid() != process.pid or child.pid not in parents:
                    child.send_signal(signal.SIGABRT)
        psutil.wait_procs(below, timeout=PATIENCE)
        for folder in sorted(folders):
            for one in Path(folder).glob("*.log"):
                found += innermost_of_last(one.read_text(errors="replace"))
            shutil.rmtree(folder, ignore_errors=True)
        process.send_signal(signal.SIGABRT)
        os.kill(process.pid, signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
    # Where it had nothing below it yet, it is the session itself that was stuck.
    return "\n".join(found or innermost_of_last(log.read_text(errors="replace")))


def ending(code: int) -> str:
    """How a process ended, by its exit code, as a clause."""
    return f"was killed by {signal_name(-code)}" if code < 0 else f"left with code {code}"


@contextlib.contextmanager
def running(arguments: list[str], **popen: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process for this block; whatever ends the block, an interrupt at any moment too, nothing of it is left."""
    with _Held() as interrupts:
        # A session of its own: Ctrl-C is for the command, which ends this.
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, start_new_session=True, **popen)
        try:
            interrupts.let_go()
            yield process
        finally:
            _end(process)


class _Held:
    """Keeps SIGINT back, from the beginning of the block until it is let go."""

    def __enter__(self) -> _Held:
        self._came, self._previous = False, None
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        self._came = True

    def let_go(self) -> None:
        previous, self._previous = self._previous, None
        if previous is not None:
            signal.signal(signal.SIGINT, previous)
            if self._came and callable(previous):
                previous(signal.SIGINT, None)

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it and all that is below it, which would end by itself, but only once it has imported torch."""
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True)
    folders = {folder for child in below if (folder := _runtime_folder(child))}
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()
    for child in below:
        with contextlib.suppress(psutil.Error):
            child.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    psutil.wait_procs(below, timeout=PATIENCE)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _runtime_folder(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.environ().get(RUN_VARIABLE, "")
    return ""
