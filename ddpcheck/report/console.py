"""A rich console that suits any stream: other encodings, logs, terminals without colour."""

from __future__ import annotations

import re
from typing import IO, Any, cast

from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table

WIDEST = 120
"""Columns beyond which lines are tiring to read."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ASCII = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_UNIT = re.compile(r"(?<=\d) (?=[^\W\d]|%)|\b(ranks?|steps?|lines?|calls?|windows?|passes|code|of|to|and) (?=\d)")
_BOUND = "\ue000"
"""Stands for a space at which no line is wrapped, until it is written."""
_SIGNS = {"→": "->", "…": "..."}
"""What stands for the signs of reports where an encoding lacks them."""
_TRAILING = re.compile(r"[ \t]+(?=\n|$)")


def console_on(stream: IO[str]) -> Console:
    """A console that never fails for a character which the stream cannot take."""
    console = Console(
        file=cast("IO[str]", _Careful(stream)), highlight=False, markup=False, emoji=False, soft_wrap=False
    )
    console.width = min(console.width or 80, WIDEST)
    return console


def across(console: Console, title: str = "") -> Rule:
    """A line across the report."""
    # rich itself keeps the characters of a line without a title.
    return Rule(title, characters="-" if console.options.ascii_only else "─", style="dim", align="left")


def ruled(console: Console) -> Table:
    """An empty table with a line below its head."""
    lines = _ASCII if console.options.ascii_only else box.SIMPLE_HEAD
    return Table(box=lines, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="dim")


def plain(text: str) -> str:
    """A text of the user's that neither moves the cursor nor recolours the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n")).expandtabs(4)


def prose(text: str) -> str:
    """A text as ``plain`` has it, which is wrapped nowhere between a number and what it counts."""
    return _UNIT.sub(lambda found: f"{found[1] or ''}{_BOUND}", plain(text))


class _Careful:
    """A text stream that writes an escape for what its encoding lacks."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        lacking = (sign for sign in _SIGNS if not sign.encode(self.encoding, "ignore"))
        self._signs = {ord(sign): _SIGNS[sign] for sign in lacking} | {ord(_BOUND): " "}

    def write(self, text: str) -> int:
        text = text.translate(self._signs)
        if not self.isatty():
            text = _TRAILING.sub("", text)
        self._stream.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))
        return len(text)

    def isatty(self) -> bool:
        return bool(getattr(self._stream, "isatty", lambda: False)())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
