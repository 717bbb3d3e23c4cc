"""Is the result of a call used? The code of the caller says so, by what comes next in it."""

from __future__ import annotations

import dis
from types import FrameType


def is_thrown_away(frame: FrameType | None) -> bool:
    """Whether nobody can look at the result of the call that a frame is making.

    A function that returns it hands it to its own caller. False where that is not known.
    """
    while frame is not None:
        following = _following(frame)
        if not following.startswith("RETURN"):
            return following == "POP_TOP"
        frame = frame.f_back
    return False


def _following(frame: FrameType) -> str:
    """The operation after the call that is under way; empty where there is none."""
    later = (one.opname for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti)
    return next((name for name in later if name not in ("NOP", "EXTENDED_ARG", "CACHE")), "")
