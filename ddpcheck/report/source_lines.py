"""Lines of the user's code around the one that a finding points at, as far as they can still be read."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ddpcheck.vocabulary.model import CallSite

BEFORE, AFTER = 2, 1
"""Lines of context: what leads to a line tells more than what follows."""

LONGEST = 500
"""Characters of a line that are shown."""

_LARGEST = 4 * 1024 * 1024
"""Bytes of a source file that is still read."""


class Line(NamedTuple):
    """One line of an excerpt."""

    number: int
    text: str
    marked: bool


class Sources:
    """The files that findings point into, each read once."""

    def __init__(self, folder: str, recorded: Mapping[str, str]) -> None:
        self._folder = folder
        self._recorded = recorded
        self._files: dict[str, list[str]] = {}
        self._functions: dict[str, list[tuple[int, int]]] = {}

    def line(self, where: CallSite) -> str:
        """The line itself, as it was when the program ran; empty where nobody knows it any more."""
        return _cut(self._whole(where))

    def _whole(self, where: CallSite) -> str:
        known = self._recorded.get(f"{where.file}:{where.line}")
        return known if known is not None else self._at(where).strip()

    def text(self, where: CallSite) -> str:
        """The whole file of a line; empty where it cannot be read."""
        return "\n".join(self._read(where.file))

    def excerpt(self, where: CallSite, before: int = BEFORE, after: int = AFTER) -> list[Line]:
        """The line with its neighbours; alone where the file is another by now, or lies on another host."""
        lines, recorded = self._read(where.file), self._whole(where)
        here = self._at(where)
        if not here.strip() or (recorded and not here.strip().startswith(recorded)):
            return [Line(where.line, _cut(recorded), True)] if recorded else []
        first = max(1, where.line - before)
        last = min(len(lines), where.line + after)
        found = [Line(n, lines[n - 1].rstrip().expandtabs(4), n == where.line) for n in range(first, last + 1)]
        while not found[0].text:
            found.pop(0)
        while not found[-1].text:
            found.pop()
        shared = min(len(one.text) - len(one.text.lstrip()) for one in found if one.text)
        return [one._replace(text=_cut(one.text[shared:])) for one in found]

    def function(self, where: CallSite) -> tuple[int, int]:
        """How many lines of the innermost function around a line come before and after it; none where it is in none."""
        text = self.text(where)
        if text not in self._functions:
            self._functions[text] = _functions(text)
        around = [(first, last) for first, last in self._functions[text] if first <= where.line <= last]
        first, last = max(around, default=(where.line, where.line))
        return where.line - first, last - where.line

    def _at(self, where: CallSite) -> str:
        lines = self._read(where.file)
        return lines[where.line - 1] if 1 <= where.line <= len(lines) else ""

    def _read(self, file: str) -> list[str]:
        if file not in self._files:
            self._files[file] = []
            path = Path(self._folder, file)
            with contextlib.suppress(OSError, ValueError):
                if path.is_file() and path.stat().st_size <= _LARGEST:
                    self._files[file] = path.read_text(encoding="utf-8", errors="replace").split("\n")
        return self._files[file]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def _functions(text: str) -> list[tuple[int, int]]:
    """The first and last line of every function."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # it has been changed since
        return []
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
