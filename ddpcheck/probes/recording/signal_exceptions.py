"""Exceptions that a program's signal handler raises while a probe is at work: they are the program's own."""

from __future__ import annotations

import signal
from types import CodeType, FrameType
from typing import Any

from ddpcheck.vocabulary.own_code import PACKAGE


def let_through(error: BaseException) -> None:
    """Raise it again if it is the program's own: for whatever else would go on without it."""
    if raised_by_handler(error):
        raise error


def raised_by_handler(error: BaseException) -> bool:
    """Whether an exception comes out of a handler that the program has set, as for a time limit or a preemption."""
    codes: set[CodeType] | None = None
    trace = error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if not frame.f_code.co_filename.startswith(PACKAGE):
            codes = _handlers() if codes is None else codes
            if frame.f_code in codes or _is_given_its_caller(frame):
                return True
    return False


def _is_given_its_caller(frame: FrameType) -> bool:
    """Whether a function was called with the frame that was interrupted: as a handler is, which may be set no more."""
    code, caller = frame.f_code, frame.f_back
    if caller is None:
        return False
    more = int(bool(code.co_flags & _TAKES_MORE))
    after = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[: code.co_argcount] + code.co_varnames[after : after + more]
    held = frame.f_locals
    for name in names:
        value = held.get(name)
        if value is caller or (isinstance(value, tuple) and any(one is caller for one in value)):
            return True
    return False


_TAKES_MORE = 0x04
"""The flag of a function that takes ``*args``."""


def _handlers() -> set[CodeType]:
    found = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        handler = getattr(handler, "func", handler)  # a functools.partial
        code = getattr(handler, "__code__", None)
        if code is None and callable(handler):
            code = getattr(type(handler).__call__, "__code__", None)
        if isinstance(code, CodeType):
            found.add(code)
    return found
