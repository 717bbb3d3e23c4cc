"""Who has called into a probe: the innermost frame that is not ddpcheck's own."""

from __future__ import annotations

import contextlib
import os
import sys
from itertools import accumulate, chain, islice, repeat
from operator import attrgetter, methodcaller
from types import CodeType, FrameType

import torch

from ddpcheck.vocabulary.own_code import PACKAGE

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OWN = (
    PACKAGE,
    # torch puts a wrapper of its compiler's around functions of its own (manual_seed, say).
    os.path.join(_TORCH, "_dynamo") + os.sep,
    os.path.join(_TORCH, "_compile.py"),
)


def caller() -> FrameType:
    """The frame of the function that has called the probe which asks."""
    return outside(sys._getframe(1))


def outside(frame: FrameType) -> FrameType:
    """This frame, or the innermost one around it that is not ddpcheck's own."""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame


def is_own(code: CodeType) -> bool:
    """Whether a function is ddpcheck's own."""
    return code.co_filename.startswith(_OWN)


DEEPEST = 10_000
"""Frames of a thread that are looked at."""


def lines_of(thread: int) -> list[tuple[CodeType, int, int]]:
    """The functions that another thread is in, their lines and instructions, innermost first; no frame is held.

    Who holds a frame keeps all its locals alive, and those of its callers: files would not be flushed when a function
    returns, and what is destroyed last would be destroyed in the thread that looks. So this is one call, made up of
    functions in C alone: the interpreter lets no other thread run in the midst of it, and each frame that was looked
    at is still on its stack when it is let go.
    """
    found: list[tuple[CodeType, int, int]] = []
    with contextlib.suppress(AttributeError):  # the outermost frame has none around it
        found.extend(
            map(
                attrgetter("f_code", "f_lineno", "f_lasti"),
                accumulate(
                    chain(
                        islice(map(methodcaller("get", thread), iter(sys._current_frames, None)), 1),
                        repeat("f_back", DEEPEST),
                    ),
                    getattr,
                ),
            )
        )
    return found


def maker(owner: object) -> FrameType:
    """The frame that makes an object whose constructor is being watched, and not one of its own constructors."""
    frame = caller()
    while frame.f_back is not None:
        code = frame.f_code
        own = code.co_filename.startswith(_OWN)
        constructor = code.co_name == "__init__" and code.co_argcount > 0
        if not own and not (constructor and frame.f_locals.get(code.co_varnames[0]) is owner):
            break
        frame = frame.f_back
    return frame
