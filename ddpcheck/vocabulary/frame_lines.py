"""The line that a frame is at: CPython has none for some instructions, such as those that clean up after a loop."""

from __future__ import annotations

from types import FrameType, TracebackType


def line_of(frame: FrameType) -> int:
    """The line that a frame is at; its function's first line where the instruction has no line of its own."""
    return frame.f_lineno or frame.f_code.co_firstlineno


def line_of_traceback(trace: TracebackType) -> int:
    """The same for an entry of a traceback."""
    return trace.tb_lineno or trace.tb_frame.f_code.co_firstlineno
