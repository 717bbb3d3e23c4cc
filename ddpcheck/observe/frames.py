"""Who has called into a probe: the innermost frame that is not ddpcheck's own."""

from __future__ import annotations

import os
import sys
from types import FrameType

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OWN = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
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
