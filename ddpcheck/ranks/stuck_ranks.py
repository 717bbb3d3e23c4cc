"""Whether ranks that are still running can ever go on: told well before a deadline, where it is certain.

A property that hangs does so for every example on the way to the smallest, so
that waiting for the deadline each time takes minutes. Ranks are stuck where all
that still run wait in torch for each other, and nothing of them moves: their
main threads have not run for a while, no thread of theirs is about to, and no
thread of the user's is there that could come to their help. On Linux alone;
elsewhere, and where anything is in doubt, the deadline decides.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

EVERY = 0.06
"""Seconds between two looks."""

LOOKS = 5
"""Looks without a movement that make ranks be looked at more closely."""

MOST_BACKGROUND = 3_000_000
"""Nanoseconds between two looks that threads in the background may run: gloo's wake up a hundred times a second."""


class Look(NamedTuple):
    """What a process has done so far."""

    main: int
    """Nanoseconds that its main thread has run."""
    others: int
    asleep: bool
    """No thread runs, is about to, or waits for a disk."""


def look(pid: int) -> Look | None:
    """Look at a process; None where that cannot be had."""
    main = others = 0
    asleep = True
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            folder = Path(f"/proc/{pid}/task/{task}")
            ran = int((folder / "schedstat").read_text().split()[0])
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            asleep = asleep and state == "S"
            if int(task) == pid:
                main = ran
            else:
                others += ran
    except (OSError, ValueError, IndexError):
        return None
    return Look(main, others, asleep) if main else None


class Stillness:
    """The looks at the ranks of one example."""

    def __init__(self) -> None:
        self._last: dict[int, Look] = {}
        self._still = 0
        self._due = float("inf")

    def begin(self, now: float) -> None:
        """An example has begun."""
        self._last, self._still, self._due = {}, 0, now + EVERY

    def end(self) -> None:
        """Nothing is to be looked at until the next example."""
        self._due = float("inf")

    @property
    def due(self) -> float:
        """When to look next."""
        return self._due

    def suspect(self, now: float, pids: Mapping[int, int]) -> bool:
        """Look at the processes of all ranks, if it is time to; whether nothing has moved for several looks."""
        if now < self._due:
            return False
        self._due = now + EVERY
        looks = {rank: seen for rank, pid in pids.items() if (seen := look(pid)) is not None}
        if len(looks) < len(pids):
            self.end()
            return False
        before, self._last = self._last, looks
        moved = not before or any(_moved(before[rank], seen) for rank, seen in looks.items())
        self._still = 0 if moved else self._still + 1
        return self._still >= LOOKS


def _moved(before: Look, after: Look) -> bool:
    return not after.asleep or after.main != before.main or after.others - before.others > MOST_BACKGROUND


_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+) in ')
_THREAD = re.compile(r"(Current t|T)hread 0x")


def waits_in_torch(stack: str) -> bool:
    """Whether a stack is that of one thread, which waits in torch, or for what torch has given it to wait for."""
    if len(_THREAD.findall(stack)) != 1:
        return False
    innermost = _FRAME.search(stack)
    if innermost is None:
        return False
    if f"{os.sep}torch{os.sep}" in innermost["file"]:
        return True
    return ".wait(" in linecache.getline(innermost["file"], int(innermost["line"]))
