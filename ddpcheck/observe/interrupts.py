"""Exceptions that a program's signal handler raises while a probe is at work: they are the program's own."""

from __future__ import annotations

import signal
from types import CodeType
from typing import Any


def raised_by_handler(error: BaseException) -> bool:
    """Whether an exception comes out of a handler that the program has set, as for a time limit or a preemption."""
    codes = _handlers()
    trace = error.__traceback__
    while trace is not None and codes:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _handlers() -> set[CodeType]:
    found = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        handler = getattr(handler, "func", handler)  # a functools.partial
        code = getattr(handler, "__code__", None)
        if isinstance(code, CodeType):
            found.add(code)
    return found
