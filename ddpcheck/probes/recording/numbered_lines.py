"""The numbers of lines in one evidence file: each line, with who has called its function, is written down once."""

from __future__ import annotations

import itertools
import linecache
import os
from collections.abc import Sequence
from types import CodeType

from ddpcheck.evidence import NO_SITE, Site
from ddpcheck.probes.recording import recorder, signal_exceptions

MOST = 4000
"""Lines, each with its callers, that are told apart; further ones are told without their callers."""
STACKS = 2000
"""Stacks whose number is kept in mind."""
LONGEST = 128 * 1024
"""Characters of a function (or a script's own level) whose text is written down."""

Key = tuple[int, str, int, str, tuple[str, ...]]


class Numbers:
    """What was numbered so far, and the stacks that led there."""

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._known: dict[Key, int] = {}
        self._lines: dict[tuple[str, int, str], int] = {}
        self._alone: dict[int, int] = {}
        self._told: set[tuple[str, int]] = set()
        """The functions whose text is on record: file and first line."""
        self._stacks: dict[tuple[int, ...], tuple[int, Sequence[CodeType]]] = {}
        """By the functions (their ids, and so they are held) and instructions of a stack, the number of its line."""

    def of_stack(self, stack: tuple[int, ...]) -> int | None:
        """The number of a stack that was met before."""
        found = self._stacks.get(stack)
        return found[0] if found is not None else None

    def alone(self, number: int) -> int:
        """The same number for all ways to a line: the first that it was given."""
        return self._alone.get(number, number)

    def keep(self, stack: tuple[int, ...], number: int, codes: Sequence[CodeType]) -> None:
        """Keep the number of a stack in mind."""
        if len(self._stacks) >= STACKS:
            self._stacks.clear()
        self._stacks[stack] = number, codes

    def __len__(self) -> int:
        return len(self._known)

    def of(
        self,
        file: str,
        line: int,
        function: str,
        caller: int = NO_SITE,
        through: tuple[str, ...] = (),
        code: CodeType | None = None,
    ) -> int:
        """The number of a line, written down when it is first met."""
        key: Key = (caller, file, line, function, through)
        if len(self) >= MOST:
            key = (NO_SITE, file, line, function, ())
        known = self._known.get(key)
        if known is not None:
            return known
        writer = recorder.always()
        if writer is None:
            return NO_SITE
        known = self._known.setdefault(key, next(self._next))  # two threads may meet here
        self._alone[known] = self._lines.setdefault((file, line, function), known)
        first, body = self._function(code)
        writer.write(
            Site(
                **writer.next(),
                id=known,
                file=short(file),
                line=line,
                function=function,
                text=linecache.getline(file, line).strip()[:200],
                caller=key[0],
                through=key[4],
                first=first,
                body=body,
            )
        )
        return known

    def _function(self, code: CodeType | None) -> tuple[int, str]:
        """The first line of a function, and its text where that is not on record yet."""
        if code is None:
            return 0, ""
        place = (code.co_filename, code.co_firstlineno)
        if place in self._told:
            return code.co_firstlineno, ""
        self._told.add(place)
        return code.co_firstlineno, text_of(code)


def text_of(code: CodeType) -> str:
    """The text of a function as its file has it; of a module's own level, the whole file. Empty where it is too long.

    Nothing is parsed here, for that would take time of the program: what closes brackets, and what is indented more
    deeply than the first line, still belongs to it.
    """
    lines = linecache.getlines(code.co_filename)
    if code.co_name == "<module>":
        text = "".join(lines)
        return text if len(text) <= LONGEST else ""
    first = code.co_firstlineno - 1
    if not 0 <= first < len(lines):
        return ""
    last = max((line for *_, line in code.co_lines() if line is not None), default=first + 1)
    depth = _depth(lines[first])
    while last < len(lines) and (
        not lines[last].strip() or _depth(lines[last]) > depth or lines[last].lstrip()[0] in ")]}"
    ):
        last += 1
    text = "".join(lines[first:last])
    return text if len(text) <= LONGEST else ""


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def short(file: str) -> str:
    """A path as a reader knows it: below the working folder, or whole."""
    try:
        path = os.path.abspath(file)
        below = os.path.relpath(path)
    except (OSError, ValueError) as error:  # the working folder has been removed
        signal_exceptions.let_through(error)
        return file
    return path if below.startswith(os.pardir) else below
