"""How the program came to a line, in one line of text: from the script's main to it, libraries and wrappers folded."""

from __future__ import annotations

import re
from collections.abc import Callable

from ddpcheck.vocabulary.model import CallSite

MOST = 4
"""Callers that are shown; of more, those in the middle are left out."""

_HANDED_ON = re.compile(r"\((?:self, *)?\*\w+, *\*\*\w+\)")
"""All arguments of a function, as they are handed to another one."""


def callers(where: CallSite, line: Callable[[CallSite], str]) -> list[CallSite]:
    """The lines that led to one, from the outermost on; ``line`` gives the text of a line.

    That a file's own level has called the function is so in most programs, and left out. So is a function that hands
    all its arguments on, as a decorator's does.
    """
    return [
        one
        for one in where.chain[:-1]
        if one.through or (one.file != where.file if one.function == "<module>" else not _HANDED_ON.search(line(one)))
    ]


def way(where: CallSite, line: Callable[[CallSite], str], whole: bool = False) -> str:
    """``model.py:30 in main (train.py:80) → in lightning: Trainer.fit → step``: a line, and how the program came to it.

    A caller in the line's own file stands there as ``main:80``; ``whole``: no caller is left out.
    """
    parts: list[str] = []
    for one in where.chain[:-1] if whole else callers(where, line):
        place = f"{one.file}:{one.line}"
        outside = place if one.function == "<module>" else f"{one.function} ({place})"
        parts.append(outside if one.file != where.file else f"{one.function}:{one.line}")
        parts += [f"in {library}" for library in one.through[:1]]  # it may well use others
    if len(parts) > MOST and not whole:
        parts = [parts[0], "…", *parts[1 - MOST :]]
    parts += [where.function, *(f"in {library}" for library in where.through[:1])]
    return f"{where.file}:{where.line} in {' → '.join(parts)}"
