"""What every record has, and the clock that it is told by."""

from __future__ import annotations

import msgspec

from ddpcheck.vocabulary.clock import clock

NO_SITE = 0
"""The site of what no line of the user's code has called."""


WIDTH = 8
"""Bytes of one digest."""

ABSENT = bytes(WIDTH)
"""In the place of a digest: there is nothing to have one."""


UNSEEN = b"\xff" * WIDTH
"""In the place of a digest: there is something, and nobody has looked at it."""


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True, kw_only=True):
    """A fact of one process. ``n`` counts the process's records, written or not; ``at`` is its monotonic clock."""

    n: int
    at: float


def now() -> float:
    """The clock of ``at``: the same for all processes of a machine."""
    return clock.now()
