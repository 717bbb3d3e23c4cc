"""The file that a watched process writes its evidence to: each record at once, and never more than the limit."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddpcheck.evidence import FULL, GOING, HEADER, OVER, Record, frame

SHARES = {"Step": 0.35, "Batch": 0.25, "Call": 0.15}
"""The parts of the limit that the kinds of records may fill which come with every step; the rest is for all others."""


class Recorder:
    """Writes records of this process.

    A record is one ``write`` of its own, so that a process which is killed has
    said all that it knew. What cannot be written is dropped: recording never
    raises in the program that is watched.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.path = folder / f"{os.uname().nodename}-{os.getpid()}-{time.monotonic_ns()}.evidence"
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._numbers = itertools.count(1)
        self._used: dict[str, int] = {}
        self._strides: dict[str, int] = {}
        self.open = True
        self._put(HEADER + GOING)

    # --- writing

    def next(self) -> dict[str, Any]:
        """The two fields that every record begins with."""
        return {"n": next(self._numbers), "at": time.monotonic()}

    def write(self, record: Record) -> int:
        """Write a record down, if there is room; its number."""
        if self.open:
            data = frame(record)
            kind = type(record).__name__
            share = kind if kind in SHARES else ""
            used = self._used.get(share, 0) + len(data)
            if used <= self.limit * SHARES.get(share, 0.25):
                self._used[share] = used
                self._put(data)
        return record.n

    def _put(self, data: bytes) -> None:
        try:
            written = os.write(self._fd, data)
            if written < len(data):
                raise OSError("the disk is full")
        except OSError:
            self.open = False
            self._status(FULL)

    def _status(self, status: bytes) -> None:
        try:
            # Over a byte that is there already: this needs no room on the disk.
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            os.pwrite(fd, status, len(HEADER))
            os.close(fd)
        except OSError:
            pass

    def close(self) -> None:
        """No more records: the process has come to its end."""
        if self.open:
            self.open = False
            self._status(OVER)

    # --- thinning

    def stride(self, kind: str) -> int:
        """Every how many of this kind there is still room to write down.

        It doubles each time that half of what was left has been used, so that
        it ends never; and being a power of two, what two processes have
        written down always has places in common.
        """
        share = self.limit * SHARES[kind]
        stride = self._strides.get(kind, 1)
        while self._used.get(kind, 0) > share * (1 - 1 / (2 * stride)):
            stride *= 2
        self._strides[kind] = stride
        return stride


_recorder: Recorder | None = None


class _Silence(threading.local):
    """How deep a thread is in what a probe itself does; the other threads go on being heard."""

    depth = 0


_silence = _Silence()


def begin(folder: Path, limit: int) -> Recorder:
    """Record into this folder from now on, in this process."""
    global _recorder
    _recorder = Recorder(folder, limit)
    return _recorder


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
    return None if _muted or _silence.depth else _recorder


def always() -> Recorder | None:
    """The recorder, also where a probe is at work: for what goes on beside it."""
    return _recorder


@contextmanager
def silence() -> Iterator[None]:
    """What happens here is the probe's own, or part of something that is on record already."""
    _silence.depth += 1
    try:
        yield
    finally:
        _silence.depth -= 1
