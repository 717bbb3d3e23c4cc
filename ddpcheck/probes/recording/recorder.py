"""The file that a watched process writes its evidence to: each record at once, and never more than the limit."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import resource
import signal
import sys
import traceback

# By name, for ever: a program may replace what it finds in the modules.
from os import close as _close
from os import fstat as _fstat
from os import open as _open
from os import pwrite as _pwrite
from os import utime as _utime
from os import write as _write
from pathlib import Path
from typing import Any

from ddpcheck.evidence import FULL, GOING, HEADER, LIMITED, LOST, OVER, Defect, Looking, Record, frame
from ddpcheck.probes.recording import signal_exceptions
from ddpcheck.probes.recording.thread_state import here
from ddpcheck.vocabulary.clock import clock

OTHERS = 0.2
"""The part of the limit that all kinds of records may fill together which have no share of their own."""


class Recorder:
    """Writes records of this process.

    A record is one ``write`` of its own, so that a process which is killed has
    said all that it knew. What cannot be written is dropped, and the file says
    that it is not complete: recording never raises in the program that is
    watched. Only making a recorder does.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.path = folder / f"{os.uname().nodename}-{os.getpid()}-{int(clock.now() * 1e9)}.evidence"
        self._fd = _opened(self.path, _WRITING | os.O_CREAT | os.O_EXCL)
        self._file = _identity(self._fd)
        self._marked = _mark(self._fd)
        self._numbers = itertools.count(1)
        self._used: dict[type[Record], int] = {}
        self._strides: dict[type[Record], int] = {}
        self._limited = False
        self.open = True
        self._put(HEADER + GOING)

    # --- writing

    def next(self) -> dict[str, Any]:
        """The two fields that every record begins with."""
        return {"n": next(self._numbers), "at": clock.now()}

    def write(self, record: Record) -> int:
        """Write a record down, if there is room; its number."""
        if self.open:
            try:
                data = frame(record)
            except Exception as error:  # a value that it cannot hold
                signal_exceptions.let_through(error)
                data = frame(Defect(n=record.n, at=record.at, text=traceback.format_exc()[-4000:]))
            kind = type(record) if record.share else Record
            used = self._used.get(kind, 0) + len(data)
            if record.unlimited or used <= self.limit * (record.share or OTHERS):
                self._used[kind] = used
                self._put(data)
            elif not self._limited:
                self._limited = True
                self._say(LIMITED)
        return record.n

    def sign(self) -> None:
        """Give a sign of life without a word: the time of the file."""
        with contextlib.suppress(OSError):
            if self.open and self._is_there():
                _utime(self._fd)

    def _put(self, data: bytes) -> None:
        try:
            if not self._is_there() and not self._reopen():
                self._stop(LOST)
            elif _write(self._fd, data) < len(data):
                self._stop(FULL)
        except OSError as error:
            signal_exceptions.let_through(error)
            self._stop(FULL if error.errno in _NO_ROOM else LOST)

    def _is_there(self) -> bool:
        """Whether the descriptor is still that of the file: a program may close it, and open something else there."""
        try:
            if self._marked:
                return fcntl.fcntl(self._fd, fcntl.F_GETSIG) == _MARK
            return _identity(self._fd) == self._file
        except OSError as error:
            signal_exceptions.let_through(error)
            return False

    def _reopen(self) -> bool:
        """Go on by the file's name; whether that was possible."""
        fd = _opened(self.path, _WRITING)
        if _identity(fd) != self._file:
            _close(fd)
            return False
        self._fd, self._marked = fd, _mark(fd)
        return True

    def _stop(self, status: bytes) -> None:
        self.open = False
        self._say(status)

    def _say(self, status: bytes) -> None:
        try:
            # Over a byte that is there already: this needs no room on the disk.
            fd = _opened(self.path, _WRITING & ~os.O_APPEND)
            try:
                if _identity(fd) == self._file:
                    _pwrite(fd, status, len(HEADER))
            finally:
                _close(fd)
        except OSError as error:
            signal_exceptions.let_through(error)

    def close(self) -> None:
        """No more records: the process has come to its end."""
        if self.open:
            self._stop(LIMITED if self._limited else OVER)
        self.let_go()

    def let_go(self) -> None:
        """Give the descriptor back, unless it is somebody else's by now; the file goes on being another process's."""
        if self._fd >= 0 and self._is_there():
            with contextlib.suppress(OSError):
                _close(self._fd)
        self._fd, self.open = -1, False

    # --- thinning

    def room(self, kind: type[Record]) -> float:
        """Bytes that there are left for a kind which has a share of its own."""
        return self.limit * kind.share - self._used.get(kind, 0)

    def stride(self, kind: type[Record]) -> int:
        """Every how many of this kind there is still room to write down.

        It doubles each time that half of what was left has been used, so that
        it ends never; and being a power of two, what two processes have
        written down always has places in common.
        """
        share = self.limit * kind.share
        stride = self._strides.get(kind, 1)
        while self._used.get(kind, 0) > share * (1 - 1 / (2 * stride)):
            stride *= 2
        self._strides[kind] = stride
        return stride


_WRITING = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class InMemory(Recorder):
    """Keeps the records of this process instead of writing them down: for a rank of a test, which is asked for them."""

    def __init__(self, most: int = 20_000) -> None:
        self.limit = most
        self.kept: list[Record] = []
        self.open = True
        self._numbers = itertools.count(1)

    def write(self, record: Record) -> int:
        """Keep a record, if there is room; its number."""
        if self.open and len(self.kept) < self.limit:
            self.kept.append(record)
        return record.n

    @property
    def is_full(self) -> bool:
        """Whether the newest records may be missing."""
        return len(self.kept) >= self.limit

    def stride(self, kind: type[Record]) -> int:
        """All of them are kept, as long as there is room."""
        return 1

    def room(self, kind: type[Record]) -> float:
        """Times are of no interest to an assertion: they would take the room of what is."""
        return 0.0

    def sign(self) -> None:
        """Nobody looks for a sign of life."""

    def close(self) -> None:
        """No more records; those that there are stay."""
        self.open = False

    def let_go(self) -> None:
        """There is no file."""


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _identity(fd: int) -> tuple[int, int]:
    found = _fstat(fd)
    return found.st_dev, found.st_ino


_MARK = signal.SIGPWR if sys.platform == "linux" else 0


def _mark(fd: int) -> bool:
    """Make an open file known again by a property that nobody else gives one; whether that is possible.

    To ask for it is cheap. Asked for the inode, a kernel that has times of
    nanoseconds makes the next write ten times as dear, and a network's file
    system asks its server.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, _MARK)  # the signal of asynchronous input: there is none without O_ASYNC
        return bool(fcntl.fcntl(fd, fcntl.F_GETSIG) == _MARK)
    except (OSError, AttributeError) as error:
        signal_exceptions.let_through(error)
        return False


_HIGH = 4096
"""The first descriptor that is tried where a process may have more of them than that."""


def _opened(path: Path, flags: int) -> int:
    """Open a file under a number that programs do not come by: they close descriptors in a row, or run out of them.

    Where the limit is low, the number lies above it, and is none of the program's.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = soft != resource.RLIM_INFINITY and soft <= _HIGH
    above = low and (hard == resource.RLIM_INFINITY or hard >= soft + 2)
    if above:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft + 2, hard))
    try:
        fd = _open(path, flags, 0o600)
        try:
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, soft if above else soft - soft // 8 if low else _HIGH)
        except OSError as error:  # these are taken
            signal_exceptions.let_through(error)
            return fd
        _close(fd)
        return high
    finally:
        if above:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_recorder: Recorder | None = None


def begin(folder: Path, limit: int) -> Recorder:
    """Record into this folder from now on, in this process."""
    global _recorder
    leave()
    _recorder = Recorder(folder, limit)
    return _recorder


def use(writer: Recorder | None) -> None:
    """Record with this one from now on; the one before goes on being whoever's it is."""
    global _recorder
    _recorder = writer


def leave() -> Recorder | None:
    """Forget the recorder, in a process that was forked: it is the parent's. What is recorded there would be silent."""
    global _recorder
    before, _recorder = _recorder, None
    if before is not None:
        before.let_go()
    return None if _muted or here.silent else before


def stop() -> None:
    """Record no more."""
    global _recorder
    if _recorder is not None:
        _recorder.close()
    _recorder = None


_muted = False


def mute(on: bool) -> None:
    """Whether nothing of this process is recorded for now, whichever thread it comes from."""
    global _muted
    _muted = on


def current() -> Recorder | None:
    """The recorder of this process; None where nothing is recorded, or where a probe itself is at work."""
    return None if _muted or here.silent else _recorder


def always() -> Recorder | None:
    """The recorder, also where a probe is at work: for what goes on beside it."""
    return _recorder


LOOKS = 50
"""Reads of memory that are put on record in a process: what is wrong with one is so from the first on."""

_looks = 0


def look_begins() -> Recorder | None:
    """Note that memory is about to be read; the recorder to tell that it is over, None where that is not noted."""
    global _looks
    if _recorder is None or _looks >= LOOKS:
        return None
    _looks += 1
    _recorder.write(Looking(**_recorder.next(), over=False))
    return _recorder


def look_is_over(writer: Recorder | None) -> None:
    """Note that the process has survived it."""
    if writer is not None:
        writer.write(Looking(**writer.next(), over=True))


class silence:
    """What happens here is the probe's own, or part of something that is on record already."""

    def __enter__(self) -> None:
        here.silent += 1

    def __exit__(self, *error: object) -> None:
        here.silent -= 1
