"""What a rank had printed, and why it left, when it can no longer say so itself."""

from __future__ import annotations

import contextlib
import os
import stat
from os import O_CLOEXEC, O_CREAT, O_TRUNC, O_WRONLY, close, write  # by name: a test may replace what it finds there
from os import open as open_descriptor

_MOST = 64 * 1024


def leave_word(run_dir: str, rank: int, text: str) -> None:
    """Write down why this rank leaves, where it cannot tell the supervisor."""
    with contextlib.suppress(OSError):
        close(0)  # room for the file, where the test has taken all there is; nobody reads here any more
    with contextlib.suppress(Exception):
        file = open_descriptor(_word_file(run_dir, rank), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        write(file, text.encode("utf-8", "backslashreplace"))
        close(file)


def last_word(run_dir: str, rank: int) -> str:
    """Why a rank has left, if it wrote that down."""
    with contextlib.suppress(OSError), open(_word_file(run_dir, rank), "rb") as file:
        return file.read(_MOST).decode("utf-8", "replace").strip()
    return ""


def _word_file(run_dir: str, rank: int) -> str:
    return f"{run_dir}/rank{rank}.word"


class CapturedOutput:
    """The files into which pytest captures a rank's standard descriptors, held open from outside.

    They have no names, and vanish with the process: whoever wants to read the
    last words of a rank that crashed must hold them before.
    """

    def __init__(self) -> None:
        self._held: list[tuple[str, int]] = []

    def open(self, pid: int) -> None:
        """Hold the files of a living process; nothing, where it does not capture into files."""
        for name, number in (("stdout", 1), ("stderr", 2)):
            with contextlib.suppress(OSError):
                fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY)
                about = os.fstat(fd)
                if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                    self._held.append((name, fd))
                else:
                    os.close(fd)

    def read(self) -> tuple[tuple[str, str], ...]:
        """The end of what is there: the output since the current phase began."""
        found = []
        for name, fd in self._held:
            size = os.fstat(fd).st_size
            text = os.pread(fd, _MOST, max(0, size - _MOST)).decode("utf-8", "replace")
            if text:
                found.append((name, text))
        return tuple(found)

    def close(self) -> None:
        for _, fd in self._held:
            os.close(fd)
        self._held = []
