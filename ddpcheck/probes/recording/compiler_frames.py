"""torch.compile compiles no frame of ours, and none of what a probe calls.

Where a compiled function cannot be compiled on, what it calls runs as it is
written, and the compiler looks at every frame of it. It passes over those of
torch; one of ours would be compiled as if it were the program's, with graphs,
breaks of graphs and recompilations that the program does not have by itself.

So the code of the probes is marked as torch's own is: no frame of it is
compiled, and what it calls may be. Within a probe the compiler looks at no
frame at all, until the function is called that the probe stands around. While
the compiler traces, it goes into a function whatever its mark: a probe says
first of all that there is nothing to see (``asleep``).

All this is asked of torch's library, and not of its compiler, whose import
takes seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from ddpcheck.vocabulary.own_code import PROBES

_HOME: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)

Callback = Any
"""What the compiler has asked to be called with each frame of a thread; None where it looks at none."""


def _none(callback: Callback) -> Callback:
    return None


set_callback: Callable[[Callback], Callback] = getattr(_HOME, "set_eval_frame", _none)
"""Have the compiler look at the frames of this thread with this callback; returns the one before."""


def leave_alone() -> None:
    """Mark the code of all probes that have been imported."""
    mark = _marking()
    if mark is None:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("ddpcheck.probes."):
            for function in functions_of(vars(module)):
                one: Any = function
                while one is not None:
                    for code in _with_inner(one.__code__):
                        mark(code)
                    one = getattr(one, "__wrapped__", None)  # what a decorator has been put around


def _marking() -> Callable[[CodeType], None] | None:
    """What marks a function's code, in this torch."""
    set_strategy = getattr(_HOME, "set_code_exec_strategy", None)
    if set_strategy is None:
        return getattr(_HOME, "skip_code", None)  # before torch 2.8
    skip = _HOME._FrameExecStrategy(_HOME._FrameAction.SKIP, _HOME._FrameAction.DEFAULT)
    return lambda code: set_strategy(code, skip)


def functions_of(names: dict[str, Any]) -> Iterator[FunctionType]:
    """The functions and methods of a module of the probes that are its own."""
    for value in list(names.values()):
        inner = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        inner = inner.fget if isinstance(inner, property) else inner
        if isinstance(inner, FunctionType):
            yield inner
        elif isinstance(inner, type) and inner.__module__.startswith("ddpcheck.probes."):
            yield from functions_of(dict(vars(inner)))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions in it; none of the standard library's, as decorators have."""
    if code.co_filename.startswith(PROBES):
        yield code
        for one in code.co_consts:
            if isinstance(one, CodeType):
                yield from _with_inner(one)
