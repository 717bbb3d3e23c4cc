"""Which line of the user's code is at work: the innermost one that is neither torch's nor a library's."""

from __future__ import annotations

import itertools
import linecache
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType

from ddpcheck.evidence import NO_SITE, Site
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.vocabulary.own_code import PACKAGE


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if paths.get(key)}
    found.update(site.getsitepackages() if hasattr(site, "getsitepackages") else [])
    found.add(site.getusersitepackages())
    return tuple(sorted({os.path.realpath(f) + os.sep for f in found} | {f + os.sep for f in found}))


_LIBRARIES = _library_folders()
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
"""Folders that hold installed code, wherever a path file or PYTHONPATH has added one."""
_users: dict[str, bool] = {}
"""By file: code objects are equal that say the same, wherever they stand."""
_ids: dict[tuple[str, int, str], int] = {}
_numbers: Iterator[int] = itertools.count(1)


def reset() -> None:
    """Forget the numbers: they belong to one evidence file."""
    global _numbers
    _ids.clear()
    _numbers = itertools.count(1)


def numbering() -> tuple[dict[tuple[str, int, str], int], Iterator[int]]:
    """The numbers that were given so far, for `number_by`."""
    return dict(_ids), _numbers


def number_by(numbering: tuple[dict[tuple[str, int, str], int], Iterator[int]]) -> None:
    """Go on with the numbers of another evidence file."""
    global _numbers
    ids, _numbers = numbering
    _ids.clear()
    _ids.update(ids)


def is_library(path: str) -> bool:
    """Whether a file lies among Python's own, or those of installed libraries."""
    return path.startswith(_LIBRARIES) or any(folder in path for folder in _INSTALLED)


def is_users(code: CodeType) -> bool:
    """Whether a function is neither torch's, nor a library's, nor ddpcheck's."""
    return is_users_file(code.co_filename)


def is_users_file(name: str) -> bool:
    """Whether a file's code is neither torch's, nor a library's, nor ddpcheck's."""
    known = _users.get(name)
    if known is None:
        known = _users[name] = not (name.startswith(("<", PACKAGE)) or is_library(name))
    return known


def users_frame(frame: FrameType | None = None) -> FrameType | None:
    """The innermost frame of the user's; of a program that is all library, the outermost that has a file."""
    if frame is None:
        frame = sys._getframe(1)
    last = None
    while frame is not None:
        if is_users(frame.f_code):
            return frame
        if not frame.f_code.co_filename.startswith(("<", PACKAGE)):
            last = frame
        frame = frame.f_back
    return last


def here(frame: FrameType | None = None) -> int:
    """The number of the line of the user's that has led here."""
    found = users_frame(frame if frame is not None else sys._getframe(1))
    if found is None:
        return NO_SITE
    return number(found.f_code.co_filename, found.f_lineno, found.f_code.co_name)


def among(lines: Iterable[tuple[CodeType, int, int]]) -> int:
    """The same, of functions, lines and instructions that were read off a stack, innermost first."""
    last = None
    for code, line, _ in lines:
        if is_users(code):
            return number(code.co_filename, line, code.co_name)
        if not code.co_filename.startswith(("<", PACKAGE)):
            last = code, line
    return number(last[0].co_filename, last[1], last[0].co_name) if last is not None else NO_SITE


def number(file: str, line: int, function: str) -> int:
    """The number of a line, written down when it is first met."""
    key = (file, line, function)
    known = _ids.get(key)
    if known is None:
        writer = recorder.always()
        if writer is None:
            return NO_SITE
        known = _ids.setdefault(key, next(_numbers))  # two threads may meet here
        writer.write(
            Site(
                **writer.next(),
                id=known,
                file=short(file),
                line=line,
                function=function,
                text=linecache.getline(file, line).strip()[:200],
            )
        )
    return known


def short(file: str) -> str:
    """A path as a reader knows it: below the working folder, or whole."""
    try:
        path = os.path.abspath(file)
        below = os.path.relpath(path)
    except (OSError, ValueError) as error:  # the working folder has been removed
        signal_exceptions.let_through(error)
        return file
    return path if below.startswith(os.pardir) else below
