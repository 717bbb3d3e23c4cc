"""Comments ``# ddpcheck: ignore[check-id] reason`` on the lines of findings, as they were when the program ran."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddpcheck.checks.registry import check_of
from ddpcheck.report.explanations import unknown
from ddpcheck.vocabulary.model import CallSite, Struct

_COMMENT = re.compile(r"#\s*ddpcheck:\s*ignore\b\s*(?:\[(?P<ids>[^\]]*)\])?(?P<reason>.*)")
_NEXT = re.compile(r"(?:^|\s)#\s")
"""Ends the reason where another comment follows, as for a linter; the # of an issue's number does not."""

_UNMATCHED = re.compile(r"unmatched '([)\]}])'")
_OPENS = {")": "(", "]": "[", "}": "{"}

_LARGEST = 4 * 1024 * 1024
"""Bytes of a source file that is still read."""

RECORDED = 200
"""Characters of a line that the evidence has, at most."""


class Comment(Struct, frozen=True, kw_only=True):
    """One such comment."""

    line: int
    checks: tuple[str, ...] = ()
    """The checks and rules that it accepts; nothing where it gives no reason."""
    reason: str = ""
    wrong: tuple[str, ...] = ()
    """What is wrong with it, as clauses."""


class LineComments:
    """The comments of the files that findings point into, each file read once.

    A file counts where the line in it is what it was when the program ran.
    Where it is another by now, or lies on another host, the recorded text of
    the line itself is all that there is.
    """

    def __init__(self, folder: str, recorded: Mapping[str, str]) -> None:
        self.folder = folder
        self._recorded = dict(recorded)
        self._files: dict[str, _Source | None] = {}

    def learn(self, recorded: Mapping[str, str]) -> None:
        """Take further lines, of a run that goes on."""
        self._recorded.update(recorded)

    def at(self, where: CallSite) -> list[Comment]:
        """The comments that concern a line: its own, and those on the first and the last line of its statement."""
        source = self._read(where.file)
        recorded = self._recorded.get(f"{where.file}:{where.line}")
        if source is not None and source.has(where.line, recorded):
            return [source.comments[line] for line in source.concerned(where.line) if line in source.comments]
        found = _parsed(comment_of(recorded), where.line) if recorded else None
        return [found] if found is not None else []

    def text(self, where: CallSite) -> str:
        """The line itself, as it was when the program ran; empty where nobody knows it any more."""
        recorded = self._recorded.get(f"{where.file}:{where.line}")
        if recorded:
            return recorded
        source = self._read(where.file)
        return source.line(where.line) if source is not None else ""

    def of_file(self, file: str, lines: Mapping[int, str]) -> list[tuple[Comment, bool]]:
        """All comments of a file that is still what ran, each with whether one of these lines of it is concerned."""
        source = self._read(file)
        if source is None or not all(source.has(number, text) for number, text in lines.items()):
            return []
        met = {line for number in lines for line in source.concerned(number)}
        return [(comment, number in met) for number, comment in source.comments.items()]

    def _read(self, file: str) -> _Source | None:
        if file not in self._files:
            self._files[file] = _source(Path(self.folder, file))
        return self._files[file]


class _Source:
    """A file of Python: its lines, its comments by line, and which lines are one statement."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self.comments: dict[int, Comment] = {}
        self._statements: list[tuple[int, int, int]] = []
        if "ddpcheck:" not in text:
            return
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found = _parsed(token.string, token.start[0])
                if found is not None:
                    self.comments[found.line] = found
        if self.comments:
            with warnings.catch_warnings():  # the program's own interpreter gives them
                warnings.simplefilter("ignore")
                self._statements = list(_statements(ast.parse(text)))

    def line(self, number: int) -> str:
        return self._lines[number - 1].strip() if 1 <= number <= len(self._lines) else ""

    def has(self, number: int, recorded: str | None) -> bool:
        """Whether this line is what was recorded of it."""
        here = self.line(number)
        return bool(here) and (not recorded or here[:RECORDED].strip() == recorded.strip())

    def concerned(self, number: int) -> list[int]:
        """The lines on which a comment concerns this one."""
        around = [one for one in self._statements if one[0] <= number <= one[1]]
        first, _, last = max(around, key=lambda one: (one[0], -one[1]), default=(number, number, number))
        return sorted({number, first, last})


def _source(path: Path) -> _Source | None:
    """A file's source; None where it cannot be read, or is no Python any more."""
    try:
        if not path.is_file() or os.path.getsize(path) > _LARGEST:
            return None
        with tokenize.open(path) as opened:
            return _Source(opened.read())
    except (OSError, ValueError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError):
        return None


def _statements(tree: ast.Module) -> Iterator[tuple[int, int, int]]:
    """Each statement's first and last line, and the last on which a comment concerns all of it.

    Of one with a body this is its head.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body:
                begins = min(one.lineno for one in (body[0], *getattr(body[0], "decorator_list", ())))
                yield node.lineno, max(node.lineno, begins - 1), node.lineno
            elif not isinstance(node, ast.Match):
                yield node.lineno, node.end_lineno or node.lineno, node.end_lineno or node.lineno


def comment_of(line: str) -> str:
    """The comment at the end of a line that stands alone: nothing that is within a string."""
    found = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(line + "\n").readline):
            if token.type == tokenize.ERRORTOKEN and token.string in ("'", '"'):  # from Python 3.12 on an error
                return ""
            if token.type == tokenize.COMMENT:
                found = token.string
    except (tokenize.TokenError, SyntaxError) as error:  # a piece of a statement
        # From Python 3.12 on, what closes a bracket of an earlier line is an error, and the comment is not reached.
        closes = _UNMATCHED.search(str(error))
        return found or (comment_of(_OPENS[closes[1]] + line) if closes is not None else "")
    return found


def _parsed(text: str, line: int) -> Comment | None:
    found = _COMMENT.search(text)
    if found is None:
        return None
    reason = _NEXT.split(found["reason"].strip(), maxsplit=1)[0].lstrip(":-–— ").strip()  # noqa: RUF001
    ids = [one.strip() for one in (found["ids"] or "").split(",") if one.strip()]
    if not ids:
        return Comment(line=line, wrong=("it names no check, as in `# ddpcheck: ignore[gradient-sync] reason`",))
    known = tuple(one for one in ids if check_of(one) is not None)
    wrong = tuple(unknown(one) for one in ids if one not in known)
    if not reason:
        return Comment(line=line, wrong=("it gives no reason; write one behind it", *wrong))
    return Comment(line=line, checks=known, reason=reason, wrong=wrong)
