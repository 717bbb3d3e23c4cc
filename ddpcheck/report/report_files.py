"""Files that a report is written to: looked at before the run, and written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path


class Unwritable(Exception):
    """A report cannot be written where it was asked for; the text says why, in one sentence."""


def check_writable(path: Path) -> None:
    """Raise ``Unwritable`` if a report could not be written there; nothing is left behind."""
    try:
        target = _behind_links(path)
        mode = target.lstat().st_mode if os.path.lexists(target) else None
        if mode is not None and stat.S_ISDIR(mode):
            raise Unwritable(f"cannot write {path}: it is a folder")
        if mode is not None and not os.access(target, os.W_OK):
            raise Unwritable(f"cannot write {path}: there is no permission to")
        if mode is not None and not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            return  # a pipe or a device takes what it is given
        folder = target.parent
        if not folder.is_dir():
            raise Unwritable(f"cannot write {path}: there is no folder {folder}")
        # Permissions do not tell all, to root nothing: a file that vanishes at once does.
        descriptor, name = tempfile.mkstemp(prefix=".ddpcheck-", dir=folder)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise Unwritable(f"cannot write {path}: {reason(error)}") from None


def write(path: Path, text: str) -> None:
    """Put a report in its place in one move: who reads it meets the old one or the new one, whole."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, data: bytes) -> None:
    """The same, of a report that is no text."""
    try:
        target = _behind_links(path)
        if target.is_symlink() or target.is_file() or not target.exists():
            _replace(target, data)
        else:
            # Nobody waits for a reader of a pipe that has none.
            with open(target, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
                os.set_blocking(opened.fileno(), True)
                opened.write(data)
    except OSError as error:
        raise Unwritable(f"cannot write {path}: {reason(error)}") from None


def failure(make: Callable[[], None]) -> str:
    """Make a report, or a part of one; why that failed, as a sentence without its subject, and empty if it did not."""
    try:
        make()
        return ""
    except (OSError, Unwritable) as error:
        return f"could not be written: {error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        place = f"{Path(last.filename).name}:{last.lineno}"
        return f"could not be made, by a fault of ddpcheck; please report it: {text} ({place})"


def failure_in_place(path: Path, write: Callable[[], None]) -> str:
    """Write a report there; if that fails, what an earlier run has left is removed, and taken for this one's by nobody.

    Returns what ``failure`` returns.
    """
    why = failure(write)
    if not why:
        return ""
    try:
        target = _behind_links(path)
        if stat.S_ISREG(target.lstat().st_mode):
            target.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        why += f"; the file there is of an earlier run, and cannot be removed: {reason(error)}"
    return why


def _behind_links(path: Path) -> Path:
    """Where a path leads by links of the user's own, and of root's; one of somebody else's is a place by itself."""
    for _ in range(40):
        try:
            found = path.lstat()
        except FileNotFoundError:
            break
        if not stat.S_ISLNK(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
            break
        path = path.parent / path.readlink()
    return path


def _replace(target: Path, data: bytes) -> None:
    # By a name that nobody can have foreseen, and put a link or a file of his own there.
    draft = target.with_name(f".ddpcheck-{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(data)
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISREG(before := target.lstat().st_mode):
                    os.fchmod(descriptor, stat.S_IMODE(before))
            opened.flush()
            os.fsync(descriptor)
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def reason(error: OSError) -> str:
    """What the system says of a failure, as a clause."""
    return (error.strerror or str(error)).lower()
