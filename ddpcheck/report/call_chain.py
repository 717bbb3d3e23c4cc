"""How the program came to a line, in one line of text: from the script's main to it, libraries and wrappers folded."""

from __future__ import annotations

import re
from collections.abc import Callable

from ddpcheck.vocabulary.model import CallSite

MOST = 4
"""Callers that are shown; of more, those in the middle are left out."""

_HANDED_ON = re.compile(r"\*\w+, *\*\*\w+\)")
"""All arguments of a function, as they are handed to another one."""


def told(where: CallSite | None, line: Callable[[CallSite], str]) -> str:
    """``main (train.py:80) → in lightning: Trainer.fit → step:30``; empty where the line says it all.

    A caller in the line's own file is told without it. That the file's own level has called the function is so in
    most programs: a chain is shown where another function has called it, another file or a library. A function that
    hands all its arguments on, as a decorator's does, is left out; ``line`` gives the text of a line.
    """
    if where is None:
        return ""
    shown = [one for one in where.chain if one.function != "<module>" or one.through or one.file != where.file]
    if not where.through:
        shown = [one for one in shown if one is not where]
    parts: list[str] = []
    for one in shown:
        if one.function == "<module>":
            parts.append(f"{one.file}:{one.line}")
        elif one is where or not _HANDED_ON.search(line(one)):
            here = one.file == where.file
            parts.append(f"{one.function}:{one.line}" if here else f"{one.function} ({one.file}:{one.line})")
        parts += [f"in {library}" for library in one.through[:1]]  # it may well use others
    if len(parts) > MOST:
        parts = [parts[0], "…", *parts[1 - MOST :]]
    return " → ".join(parts)
