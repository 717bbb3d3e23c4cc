"""Files that a report is written to: looked at before the run, and written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


class Unwritable(Exception):
    """A report cannot be written where it was asked for; the text says why, in one sentence."""


def check_writable(path: Path) -> None:
    """Raise ``Unwritable`` if a report could not be written there; nothing is left behind."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise Unwritable(f"cannot write {path}: {reason(error)}") from None
    if mode is not None and stat.S_ISDIR(mode):
        raise Unwritable(f"cannot write {path}: it is a folder")
    if mode is not None and not os.access(path, os.W_OK):
        raise Unwritable(f"cannot write {path}: there is no permission to")
    if mode is not None and not stat.S_ISREG(mode):
        return  # a pipe or a device takes what it is given
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise Unwritable(f"cannot write {path}: there is no folder {folder}")
    try:
        # Permissions do not tell all, to root nothing: a file that vanishes at once does.
        descriptor, name = tempfile.mkstemp(prefix=".ddpcheck-", dir=folder)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise Unwritable(f"cannot write {path}: {reason(error)}") from None


def write(path: Path, text: str) -> None:
    """Put a report in its place in one move: who reads it meets the old one or the new one, whole."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise Unwritable(f"cannot write {path}: {reason(error)}") from None


def _replace(target: Path, data: bytes) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with draft.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        if target.exists():
            draft.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def reason(error: OSError) -> str:
    """What the system says of a failure, as a clause."""
    return (error.strerror or str(error)).lower()
