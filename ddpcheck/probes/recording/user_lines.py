"""Which line of the user's code is at work: the innermost one that is neither torch's nor a library's."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType

from ddpcheck.evidence import NO_SITE
from ddpcheck.probes.recording.numbered_lines import Numbers
from ddpcheck.vocabulary.frame_lines import line_of
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
_owners: dict[str, str] = {}
"""By file: the library that it belongs to."""
_passed: dict[object, bool] = {}
"""By module: its frames are part of no chain, whichever of its functions they are of."""
_passed_over: dict[int, dict[str, object]] = {}
"""By identity, the names of modules of which that is true: to look one up in there takes longer than all the rest."""
_OF_NOBODY, _OF_SOMEBODY = ("torch.", "ddpcheck."), "torch.distributed.checkpoint"
"""Modules whose functions `library_of` names nobody for, and those among them for which it does."""
Line = tuple[CodeType, int]
DEEPEST = 150
"""Frames of a stack that are looked at for who has called whom."""
LONGEST = 24
"""Lines of a chain that are told: of a deeper recursion, the innermost and the outermost ones."""
PULSES = 500
"""Numbers from which on that of where the main thread stands, which may be anywhere, is of its line alone."""
OUTWARDS = 30
"""Frames of a stack that are looked at for the constructor that something is made in."""
HELPERS = 4
"""Lines of the user's on the way there, at most."""
_numbers = Numbers()


def reset() -> None:
    """Forget the numbers: they belong to one evidence file."""
    number_by(Numbers())


def numbering() -> Numbers:
    """The numbers that were given so far, for `number_by`."""
    return _numbers


def number_by(numbering: Numbers) -> None:
    """Go on with the numbers of another evidence file."""
    global _numbers
    _numbers = numbering


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
    """The number of the line of the user's that has led here, and of who has called its function."""
    innermost = frame if frame is not None else sys._getframe(1)
    at: FrameType | None = innermost
    codes: list[CodeType] = []
    instructions: list[int] = []
    passed = _passed_over
    for _ in range(DEEPEST):
        if at is None:
            break
        outer = at.f_back
        # To ask for a frame's code is an event to every audit hook, ours included, and takes far longer than the rest
        # of this. The outermost frame is what a program that is all library is told by.
        names = at.f_globals
        if outer is None or not (id(names) in passed or _is_passed(at, names)):
            codes.append(at.f_code)
            instructions.append(at.f_lasti)
        at = outer
    stack = (*map(id, codes), *instructions)  # a function's own hash goes through all that it says
    known = _numbers.of_stack(stack)
    if known is None:
        known = chained(lines_of(innermost))
        if known != NO_SITE:
            _numbers.keep(stack, known, codes)
    return known


def _is_passed(frame: FrameType, names: dict[str, object]) -> bool:
    """Whether a module's frames say nothing of who has called whom: torch's, and our own."""
    module = names.get("__name__")
    known = _passed.get(module)
    if known is None:
        inner = isinstance(module, str) and module.startswith(_OF_NOBODY) and not module.startswith(_OF_SOMEBODY)
        known = _passed[module] = inner and not is_users(frame.f_code)
    if known:
        _passed_over[id(names)] = names
    return known


def lines_of(frame: FrameType | None) -> list[Line]:
    """The functions of a stack, and the lines that they are at, innermost first; what runs the script is no part."""
    found: list[Line] = []
    while frame is not None and len(found) < DEEPEST:
        found.append((frame.f_code, line_of(frame)))
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            break
        frame = frame.f_back
    return found


def lines_within_constructor(frame: FrameType | None) -> tuple[Line, ...]:
    """The lines of the user's from the innermost to that of a constructor; the innermost alone where none is near.

    It is asked for each parameter of a model: no more is looked at than these few frames.
    """
    found: list[Line] = []
    for _ in range(OUTWARDS):
        if frame is None or len(found) == HELPERS:
            break
        code = frame.f_code
        if is_users_file(code.co_filename):
            found.append((code, line_of(frame)))
            if code.co_name == "__init__":
                return tuple(found)
        frame = frame.f_back
    return tuple(found[:1])


def among(lines: Iterable[tuple[CodeType, int, int]]) -> int:
    """The number of the user's line among functions, lines and instructions that were read off a stack."""
    read = [(code, line or code.co_firstlineno) for code, line, _ in lines]
    if len(_numbers) > PULSES:
        read = next(([one] for one in read if is_users(one[0])), read)
    return chained(read)


def chained(lines: Sequence[Line]) -> int:
    """The number of the innermost line of the user's in a stack; of a program that is all library, the outermost
    that has a file.
    """
    links: list[tuple[CodeType, int, tuple[str, ...]]] = []
    through: list[tuple[str, str]] = []
    last = None
    for code, line in lines:
        name = code.co_filename
        if is_users_file(name):
            links.append((code, line, tuple(f"{library}: {function}" for library, function in reversed(through))))
            through = []
        elif not name.startswith(("<", PACKAGE)):
            last = code, line
            library = library_of(name)
            if library and through and through[-1][0] == library:
                through[-1] = library, _name(code)  # the function that was called from outside of it
            elif library:
                through.append((library, _name(code)))
    if not links:
        return number(last[0].co_filename, last[1], last[0].co_name) if last is not None else NO_SITE
    if len(links) > LONGEST:
        links = [*links[: LONGEST // 2], *links[-LONGEST // 2 :]]
    at = NO_SITE
    for code, line, into in reversed(links):
        at = _numbers.of(code.co_filename, line, code.co_name, at, into, code)
    return at


def line_alone(number: int) -> int:
    """The same number for all ways to a line: what is counted by lines is counted by this."""
    return _numbers.alone(number)


def number(file: str, line: int, function: str) -> int:
    """The number of a line of which is not known who has called its function, written down when it is first met."""
    return _numbers.of(file, line, function)


def function(code: CodeType) -> int:
    """The number of the first line of a function of the user's, written down with its text; none for others'."""
    if not is_users(code):
        return NO_SITE
    return _numbers.of(code.co_filename, code.co_firstlineno, code.co_name, code=code)


def library_of(file: str) -> str:
    """The installed library that a file belongs to; none for torch, which everything goes through, and for Python."""
    known = _owners.get(file)
    if known is None:
        known = _owners[file] = _library(file)
    return known


def _library(file: str) -> str:
    for folder in _INSTALLED:
        _, inside, rest = file.rpartition(folder)
        if inside:
            parts = rest.split(os.sep)
            name = parts[0].removesuffix(".py")
            if name == "torch":
                return "torch.distributed.checkpoint" if parts[1:3] == ["distributed", "checkpoint"] else ""
            return name
    return ""


def _name(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))  # Python 3.10 has the name alone
