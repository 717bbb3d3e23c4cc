"""The signals that ask a run to end: who has had them, and when.

A terminal's Ctrl-C and a scheduler's SIGTERM come to ddpcheck alone, to the
process that starts the ranks alone, or to every process at once. The program
must get each of them once, as under torchrun: a second one would take away
the time in which it saves what it has.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any, NamedTuple

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""What asks a program to end; torchrun ends its ranks on each of them, and on those that it is told of."""

TOGETHER = 0.5
"""Seconds within which signals are one: launchers and terminals send them to several processes, one after the other."""

BY_ITSELF = 0.2
"""Seconds for the process that starts the ranks to tell that it has had the signal as well."""

_PR_SET_PDEATHSIG = 1


def listed(names: str | None) -> tuple[int, ...]:
    """The signals of torchrun's --signals-to-handle, as far as it can take them; None where it has no such option."""
    found = [getattr(signal, name.strip(), None) for name in (names or "").split(",")]
    # Who starts processes gets SIGCHLD as well, and nobody has sent it.
    never = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD)
    return tuple(one for one in found if isinstance(one, signal.Signals) and one not in never)


class Asked(NamedTuple):
    """The first signal of a run."""

    signal: int
    at: float
    """On the monotonic clock."""


class Signals:
    """Takes these signals while a run goes on, and hands them on to its first process, unless that had them itself."""

    def __init__(self, launched: bool = True, more: Iterable[int] = ()) -> None:
        # torchrun's agent takes all of them, whatever it was started with; a script by itself does not get what is
        # ignored, as SIGINT is in what a shell starts in the background, and SIGHUP under nohup.
        self.asking = tuple(
            n for n in dict.fromkeys((*ASKING, *more)) if launched or signal.getsignal(n) is not signal.SIG_IGN
        )
        self._launched = launched
        self.first: Asked | None = None
        self.again = False
        """There was a second one, after a while: nobody waits any more. A script by itself may live through many."""
        self._settled = False
        """The first process of the run has had the first signal."""
        self._echoed = False
        """It has told of it."""
        self._due: dict[int, float] = {}
        """What a script by itself may not have had yet: when it came here."""
        self._had: dict[int, float] = {}
        """When it had each signal last."""
        self._before: dict[int, Any] = {}
        self._witness: int | None = None

    def __enter__(self) -> Signals:
        self._heard, self._tell = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(self._tell, False)
        self._before = {number: signal.signal(number, self._take) for number in self.asking}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._witness is not None:
            os.kill(self._witness, signal.SIGKILL)
            os.waitpid(self._witness, 0)
        os.close(self._heard)
        os.close(self._tell)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._note(number)
        now = time.monotonic()
        if now - self._had.get(number, -TOGETHER) >= TOGETHER:
            self._due.setdefault(number, now)

    def _note(self, number: int) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = Asked(number, now)
        elif self._launched and now - self.first.at > TOGETHER:
            self.again = True

    # --- the first process of the run

    def fork(self, blocked: bool = False) -> int:
        """Fork a child that takes signals as this process did before, or keeps them waiting; none is lost meanwhile."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {*ASKING, *self.asking})
        pid = -1
        try:
            pid = os.fork()
            if not pid:
                for number, handler in self._before.items():
                    signal.signal(number, handler)
            return pid
        finally:
            if pid or not blocked:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def report_from_here(self) -> None:
        """Let this process, a child, tell of each signal that it gets: its interpreter does, before any handler."""
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)

    def report_from_beside(self) -> None:
        """Where the first process cannot tell: have another one in its process group do it, if there may be one."""
        parent = os.getpid()
        try:
            self._witness = self.fork(blocked=True)
        except OSError:
            return
        if self._witness:
            return
        try:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            while os.getppid() == parent:
                os.write(self._tell, bytes([signal.sigwait(ASKING)]))
        finally:
            os._exit(0)

    def wait(self, seconds: float) -> None:
        """Wait as long, or until somebody tells of a signal."""
        heard = select.poll()
        heard.register(self._heard, select.POLLIN)
        heard.poll(seconds * 1000)
        self.listen()

    def listen(self) -> None:
        """Take in what was told."""
        told = b""
        with contextlib.suppress(BlockingIOError):
            told = os.read(self._heard, 64)
        for number in told:
            if number not in self.asking:
                continue
            self._had[number] = time.monotonic()
            self._due.pop(number, None)
            # The first that it tells of is the one that was noted here, or handed on from here.
            if self.first is None or self._echoed:
                self._note(number)
            self._settled = self._echoed = True

    def hand_on(self, pid: int) -> None:
        """Give the first process of the run what it has not had by itself; to be called at every look."""
        now = time.monotonic()
        if self._launched:
            if self.first is not None and not self._settled and now - self.first.at >= BY_ITSELF:
                self._settled = True
                self._send(pid, self.first.signal)
            return
        for number, at in list(self._due.items()):
            if now - at >= BY_ITSELF:
                self._had[number] = at
                del self._due[number]
                self._send(pid, number)

    def _send(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
