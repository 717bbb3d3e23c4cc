"""Forked copies of a rank, in which something may go wrong for good: what they say, and how they end."""

from __future__ import annotations

import os
import random
import resource
import select
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import torch

from ddpcheck.checkpoint_trials.collectives_alone import be_alone
from ddpcheck.probes.recording import recorder
from ddpcheck.ranks.process_ties import die_with_parent
from ddpcheck.vocabulary.clock import clock

PATIENCE = 30.0
"""Seconds for one copy to end, unless it makes copies itself."""
_THREADS = " (a copy has none of the rank's other threads: whoever waits for one, waits for ever)"


class Ending(NamedTuple):
    """How a copy of this rank has ended."""

    said: Any
    """What its function has returned, as plain data; None where it did not come to that."""
    error: str
    """The exception that it raised, in one line."""
    signal: int | None
    """The signal that has killed it."""

    @property
    def why(self) -> str:
        """Why it has said nothing, in one line."""
        return self.error.strip().splitlines()[-1] if self.error.strip() else f"it was ended by signal {self.signal}"


def why_not() -> str:
    """Why this process cannot be copied; empty where it can."""
    simulation = sys.modules.get("ddpcheck.device_simulation.simulation")
    simulated = simulation is not None and simulation.is_on()
    if not simulated and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "CUDA does not work in a forked copy of a process that uses it"
    return ""


def in_copy(function: Callable[[], Any], patience: float | None = PATIENCE) -> Ending:
    """Call ``function`` in a copy of this rank that has no peers, and wait for its end; seconds of patience."""
    parent = os.getpid()
    stream = random.getstate()
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads that a fork leaves behind: the copy uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        random.setstate(stream)  # Python seeds it anew in a forked child
        _be_copy(function, parent, theirs)
    os.close(theirs)
    data = _read(ours, pid, patience)
    os.close(ours)
    _, status = os.waitpid(pid, 0)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    said, error = msgspec.msgpack.decode(data) if data else (None, "")
    return Ending(said, error, number)


def _read(fd: int, pid: int, patience: float | None) -> bytes:
    """Everything that the copy says, up to its end, or to that of our patience."""
    data = b""
    deadline = None if patience is None else clock.now() + patience
    while True:
        left = None if deadline is None else max(0.0, deadline - clock.now())
        if not select.select([fd], [], [], left)[0]:
            os.kill(pid, signal.SIGKILL)
            return msgspec.msgpack.encode((None, f"it did not end within {patience:g} s{_THREADS}"))
        piece = os.read(fd, 1 << 20)
        if not piece:
            return data
        data += piece


def _be_copy(function: Callable[[], Any], parent: int, fd: int) -> None:
    """Live as the copy. Never returns."""
    try:
        die_with_parent(parent)
        recorder.stop()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        torch.set_num_threads(1)  # OpenMP's other threads are not here
        be_alone()
        try:
            answer: tuple[Any, str] = (function(), "")
        except BaseException as error:
            first = error.__cause__ or error  # what the user's function has raised
            answer = (None, f"{type(first).__name__}: {first}".strip())
        data = memoryview(msgspec.msgpack.encode(answer))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os._exit(0)
