"""Processes of a run that use torch and record nothing: which, and why they cannot be followed.

A process is followed through its environment, which a launcher may make anew and an interpreter may be told to leave
out. That a process uses torch is seen from outside: its libraries are mapped into it (Linux).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import psutil

from ddpcheck.probes import startup
from ddpcheck.probes.follow_program import FOLDER
from ddpcheck.vocabulary.wording import count

FIRST = 2.0
"""Seconds from the beginning of a run to the first look; each further one comes after twice the time."""

SELDOM = 60.0
"""Seconds between two looks, at the most."""

NAMED = 3
"""Processes that a note names."""

_LIBRARY = "/libtorch"
_LEAVES_OUT = {"I": "PYTHONPATH", "E": "PYTHONPATH", "S": "site"}
"""Flags of an interpreter with which nothing of ours is imported, and what it leaves out for them."""

_WITH_VALUE = "cmWX"
"""Flags that take what follows."""


class Unfollowed:
    """Looks for such processes now and then."""

    def __init__(self) -> None:
        self._due = 0.0
        self._pause = FIRST
        self._why: dict[int, str] = {}
        """By pid: what to say of it."""

    def is_due(self, now: float) -> bool:
        """Whether it is time for a look; the next one is put off."""
        if not self._due:
            self._due = now + self._pause
        if now < self._due:
            return False
        self._pause = min(2 * self._pause, SELDOM)
        self._due = now + self._pause
        return True

    def look(self, family: Iterable[psutil.Process], followed: Collection[int]) -> None:
        """Look at the processes of a run; of ``followed`` there is evidence."""
        for process in family:
            if process.pid not in followed and process.pid not in self._why:
                with contextlib.suppress(psutil.Error, OSError):
                    if _uses_torch(process.pid) and (why := reason(process.cmdline(), process.environ())):
                        self._why[process.pid] = f"{process.pid} ({_short(process.cmdline())}) {why}"

    def notes(self, followed: Collection[int]) -> list[str]:
        """What a reader has to know, as sentences."""
        found = [why for pid, why in sorted(self._why.items()) if pid not in followed]
        if not found:
            return []
        named = "; ".join(found[:NAMED]) + (f"; and {len(found) - NAMED} more" if len(found) > NAMED else "")
        return [f"{count(len(found), 'process', 'processes')} used torch and could not be followed: {named}."]


def reason(command: Sequence[str], environment: dict[str, str]) -> str:
    """Why a process cannot be followed, as a clause; empty where it can."""
    for flag in _flags(command):
        if flag in _LEAVES_OUT:
            return f"was started with -{flag}, which leaves out {_LEAVES_OUT[flag]}"
    if not environment:
        return ""  # not to be seen, perhaps
    if FOLDER not in environment:
        return "was started with an environment of its own, without what ddpcheck has put there"
    if str(Path(startup.__file__).parent) not in environment.get("PYTHONPATH", "").split(os.pathsep):
        return "was started with a PYTHONPATH of its own"
    return ""


def _flags(command: Sequence[str]) -> Iterable[str]:
    """The flags of an interpreter that are one letter each."""
    if not command or not Path(command[0]).name.startswith("python"):
        return
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            return
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter in "cm":
                return
            if letter in _WITH_VALUE:
                if place == len(word):
                    next(words, None)
                break
            yield letter


def _uses_torch(pid: int) -> bool:
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
        return any(_LIBRARY in line for line in maps)


def _short(command: Sequence[str]) -> str:
    text = " ".join(command)
    return text if len(text) <= 60 else text[:57] + "..."
