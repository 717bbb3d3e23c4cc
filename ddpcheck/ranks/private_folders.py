"""The private folder of a session, and what sessions that were killed have left of theirs.

A folder is in use as long as somebody holds the lock of the file in it, which
the kernel lets go of when the last holder ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

from ddpcheck.ranks.descriptors import Identity, identity, out_of_reach

PREFIX = "ddpcheck-"
_OWNER = "owner"


class Folder:
    """A new folder that is this user's alone, and this process's until it is removed."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix=PREFIX)  # mode 0700
        self.lock = -1
        """The descriptor that holds the lock."""
        self._identity: Identity | None = None
        try:
            # Under another name until it is locked: what has no owner yet is not taken for abandoned.
            draft = os.path.join(self.path, "draft")
            self.lock = out_of_reach(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._identity = identity(self.lock)
            os.write(self.lock, _here())
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(draft, os.path.join(self.path, _OWNER))
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock >= 0 and identity(self.lock) == self._identity:
            os.close(self.lock)
        self.lock = -1


def within(path: str) -> str:
    """A new folder in a session's folder, which is made again where somebody has removed it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    about = os.lstat(path)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise PermissionError(f"{path} was removed, and what is there now is not a folder of this user")
    return tempfile.mkdtemp(dir=path)


def remove_abandoned() -> list[str]:
    """Remove the folders that killed sessions of this user have left on this machine; returns which."""
    removed = []
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
            with contextlib.suppress(OSError):
                if _is_abandoned(path):
                    shutil.rmtree(path, ignore_errors=True)
                    removed.append(str(path))
    return removed


def _is_abandoned(path: Path) -> bool:
    """Whether this is a session's folder, of this user and machine, that nobody holds any more."""
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        return False
    descriptor = os.open(path / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or os.read(descriptor, 1000) != _here():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError, where it is in use
        return os.path.samestat(found, os.stat(path / _OWNER))
    finally:
        os.close(descriptor)


def _here() -> bytes:
    """What names this machine: a lock may not be seen from another one that has the same folder."""
    return f"ddpcheck on {socket.gethostname()}\n".encode(errors="replace")


def note_collecting(runtime_dir: str, path: str) -> None:
    """Note which file is imported now; a message would have to be awaited."""
    with contextlib.suppress(OSError):
        (Path(runtime_dir) / "collecting").write_text(path, errors="surrogateescape")


def collecting(runtime_dir: str) -> str:
    """The file that was last noted."""
    try:
        return (Path(runtime_dir) / "collecting").read_text(errors="surrogateescape")
    except OSError:
        return ""
