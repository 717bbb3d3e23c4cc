"""Whether this process is the one rank of its group: there is nothing to compare it with, and no probe looks at memory.

What a process does, and how it ends, is recorded all the same.
"""

from __future__ import annotations

_lone = False


def joined(world_size: int) -> None:
    """The process has become a rank of a default group of this size."""
    global _lone
    _lone = world_size == 1


def is_lone() -> bool:
    """Whether there is no other rank; that of a process which has joined no group is not known."""
    return _lone
