"""Which of the many files that a process opens matter to its run: decided in a microsecond, and never for ever."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

from ddpcheck.evidence import NO_SITE
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.thread_state import here

MOST = 20_000
"""File records of one process."""
OFTEN = 64
"""Records of one path (or of one folder's data files) before only every second, fourth, eighth … is told."""

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin", ".tar", ".safetensors", ".distcp", ".pkl", ".npz")
_SOURCES = (".py", ".pyc", ".pyi", ".so")
_MACHINERY = ("/torch/_inductor/", "/torch/_dynamo/", "/torch/_functorch/", "/torch/utils/cpp_extension", "/triton/")
"""Libraries that keep caches of their own, made to be shared by many processes."""
_SYSTEM = ("/proc/", "/sys/", "/dev/")

_machinery: dict[CodeType, bool] = {}
_times: dict[str, int] = {}
_answers: dict[str, bool] = {}
_told = 0


def reset() -> None:
    """Begin anew: in a child that was forked."""
    global _told
    _times.clear()
    _answers.clear()
    _told = 0


class Busy:
    """What this thread opens in here is part of something that is recorded as a whole."""

    def __enter__(self) -> None:
        here.busy += 1

    def __exit__(self, *error: object) -> None:
        here.busy -= 1


def busy() -> bool:
    """Whether this thread is in the midst of something that is recorded as a whole."""
    return here.busy > 0


def is_elsewhere(path: str) -> bool:
    """Source code, the system's own files, those of libraries, and the evidence itself."""
    if path.endswith(_SOURCES) or user_lines.is_library(path):
        return True
    if path.startswith(_SYSTEM):
        return not path.startswith("/dev/shm/")
    writer = recorder.always()
    return writer is not None and path.startswith(os.fspath(writer.folder))


def is_write_due(path: str) -> bool:
    """Whether to tell of a write."""
    return _is_due("w" + path)


def is_read_due(path: str) -> bool:
    """Whether to tell of a read: of a data set's thousands of files, only of the first of each folder."""
    if path.endswith(CHECKPOINTS) or "w" + path in _times:
        return _is_due(path)
    return _is_due(path.rpartition("/")[0] + "/", MOST // 2) and _is_due(path, MOST // 2)


def _is_due(what: str, most: int = MOST) -> bool:
    """Whether to tell of this again: always at first, more and more seldom afterwards."""
    times = _times.get(what)
    if times is None:
        if len(_times) >= most:
            return False
        times = 0
    _times[what] = times = times + 1
    return times <= OFTEN or not times & (times - 1)


def is_query_due(path: str, site: int, answer: bool) -> bool:
    """Whether to tell of a question: always if the answer is another than before."""
    what = f"{site} {path}"
    due = _is_due(what)
    before = _answers.get(what)
    if due:
        _answers[what] = answer
    return due or (before is not None and before is not answer)


def has_room() -> bool:
    """Whether one more record may be written; it is counted."""
    global _told
    _told += 1
    return _told <= MOST


def resolved(path: str) -> str:
    """The path from the root, through all links."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return _from_nowhere(path)


def absolute(path: str) -> str:
    """The path from the root."""
    try:
        return os.path.abspath(path)
    except (OSError, ValueError):
        return _from_nowhere(path)


def _from_nowhere(path: str) -> str:
    """A path that cannot be told from the root, for the working folder was removed: it is this process's own."""
    return os.path.join(f"/proc/{os.getpid()}/cwd", path)


def working_folder() -> str:
    """The working folder; empty if it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def identity(path: str) -> str:
    """Device and inode; empty for what is not there."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        signal_exceptions.let_through(error)
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def users_line() -> int:
    """The line of the user's that has led here; that of none where an import, or a library's own cache, is at work."""
    return users_line_through()[0]


def users_line_through() -> tuple[int, bool]:
    """That line, and whether it has led here through a library other than the standard one."""
    frame: FrameType | None = sys._getframe(1)
    library = False
    while frame is not None:
        code = frame.f_code
        if user_lines.is_users(code):
            return user_lines.here(frame), library
        if _is_machinery(code):
            return NO_SITE, library
        library = library or "/site-packages/" in code.co_filename or "/dist-packages/" in code.co_filename
        frame = frame.f_back
    return NO_SITE, library


def _is_machinery(code: CodeType) -> bool:
    known = _machinery.get(code)
    if known is None:
        name = code.co_filename.replace("\\", "/")
        known = name.startswith("<frozen importlib") or any(part in name for part in _MACHINERY)
        _machinery[code] = known
    return known
