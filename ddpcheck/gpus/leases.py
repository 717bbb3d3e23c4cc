"""Leases of GPUs: one holder at a time among all sessions of a user on a machine, by file locks.

A GPU has two files, named by what names the GPU itself: ``.use`` is locked by
its holder, ``.turn`` by whoever comes next. Who wants GPUs first gets the turns
of all that it may use, in one order, and then takes what it wants at once or
waits on; so nobody who waits holds a GPU, a test that wants many is not passed
by tests that want one, and sessions that see different GPUs never meet.

The kernel holds the locks: they end with the last process that has the file
open, however it ends. Ranks that are forked inherit it, so that a GPU is not
lent anew before they are gone. (filelock closes its file in a forked process.)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ddpcheck.vocabulary.model import Gpu

FOLDER_VARIABLE = "DDPCHECK_LEASES"
"""Names the folder of the locks. Within a test that holds a lease it names another one, since whatever the test
starts (a pytest session, say) shares the GPUs of this test, and nobody else's."""

PAUSE = 0.05
"""Seconds between two attempts."""

PATIENCE = 10.0
"""Seconds of waiting after which a reader is told."""


def folder() -> Path:
    """The folder of the locks, made where it is not there; raises PermissionError where it is somebody else's."""
    named = os.environ.get(FOLDER_VARIABLE)
    path = Path(named) if named else Path(tempfile.gettempdir()) / f"ddpcheck.gpus.{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(
            f"{path}, where the leases of GPUs are kept, is not a folder of this user: remove it, or name another one "
            f"in the environment variable {FOLDER_VARIABLE}"
        )
    return path


class Lease:
    """A wish for ``wanted`` of these GPUs, and then the lease of them."""

    def __init__(self, candidates: Iterable[Gpu], wanted: int, place: Path, holder: str) -> None:
        self.wanted, self.place, self.holder = wanted, place, holder
        self.candidates = tuple({gpu.key: gpu for gpu in candidates}.values())
        if not 0 < wanted <= len(self.candidates):
            raise ValueError(f"{wanted} of {len(self.candidates)} GPUs cannot be had")
        self.gpus: tuple[Gpu, ...] = ()
        """The GPUs that are leased; empty until ``take`` has returned true."""
        self._turns: dict[str, int] = {}
        self._uses: dict[str, int] = {}

    def take(self) -> bool:
        """Try, without waiting, and keep one's place in the queue; true once all that is wanted is leased."""
        if self.gpus:
            return True
        if not self._has_turn():
            return False
        free: list[Gpu] = []
        for gpu in self.candidates:
            if len(free) < self.wanted and self._lock(self._uses, gpu, "use"):
                free.append(gpu)
        if len(free) < self.wanted:
            _unlock(self._uses)
            return False
        self.gpus = tuple(free)
        for descriptor in self._uses.values():
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{self.holder} (process {os.getpid()})".encode(), 0)
        _unlock(self._turns)
        return True

    def _has_turn(self) -> bool:
        """Come nearer to the head of all queues; those that were reached are kept."""
        in_order = sorted(self.candidates, key=lambda gpu: gpu.key)
        return all(gpu.key in self._turns or self._lock(self._turns, gpu, "turn") for gpu in in_order)

    def _lock(self, held: dict[str, int], gpu: Gpu, what: str) -> bool:
        path = _file(self.place, gpu, what)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):  # nobody has tidied it away in between
                held[gpu.key] = descriptor
                return True
        os.close(descriptor)
        return False

    def release(self) -> None:
        """Give the GPUs and the place in the queue back; also what forked processes still have open."""
        for descriptor in self._uses.values():
            with contextlib.suppress(OSError):
                os.truncate(descriptor, 0)
        _unlock(self._uses)
        _unlock(self._turns)
        self.gpus = ()

    def told(self) -> str:
        """What this wish waits for, in a sentence without its end."""
        users = []
        for gpu in self.candidates:
            free: dict[str, int] = {}
            if self._lock(free, gpu, "use"):
                _unlock(free)
                continue
            with contextlib.suppress(OSError):
                text = _file(self.place, gpu, "use").read_text(errors="replace").strip()
                if text:
                    users.append(f"GPU {gpu.token} by {text}")
        names = ", ".join(gpu.token for gpu in self.candidates)
        used = "; in use: " + "; ".join(users) if users else ""
        return f"{self.holder} waits for {self.wanted} of the GPUs {names}{used}"


def _file(place: Path, gpu: Gpu, what: str) -> Path:
    return place / f"{re.sub(r'[^A-Za-z0-9-]', '_', gpu.key)}.{what}"


def _unlock(held: dict[str, int]) -> None:
    for descriptor in held.values():
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
    held.clear()
