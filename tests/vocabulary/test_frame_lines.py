"""A frame without a line of its own is at its function's first line."""

from __future__ import annotations

import sys
from types import FrameType, FunctionType, TracebackType

import pytest

from ddpcheck.probes.recording import user_lines
from ddpcheck.vocabulary.frame_lines import line_of, line_of_traceback


def test_a_frame_is_at_its_line():
    """As Python tells it."""
    frame = sys._getframe()
    assert line_of(frame) == frame.f_code.co_firstlineno + 3


def test_an_entry_of_a_traceback_is_at_its_line():
    """As Python tells it."""
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    assert line_of_traceback(caught.tb) == caught.tb.tb_lineno


def in_a_function() -> FrameType:
    return sys._getframe()


def test_without_a_line_it_is_at_its_functions_first():
    """A function whose instructions have no lines, as CPython has some in loops."""
    code = in_a_function.__code__.replace(co_linetable=b"")
    frame = FunctionType(code, globals())()
    assert frame.f_lineno is None
    assert line_of(frame) == code.co_firstlineno
    assert user_lines.lines_of(frame)[0] == (code, code.co_firstlineno)
    trace = TracebackType(None, frame, 0, -1)
    assert line_of_traceback(trace) == code.co_firstlineno
