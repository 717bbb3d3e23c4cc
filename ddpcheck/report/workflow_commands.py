"""The commands by which a program speaks to the runner of GitHub Actions: lines of its output that begin with ``::``.

The runner reads standard output and standard error alike, and takes ``::`` at
the begin of a line, behind any white space, or ``##[`` anywhere in it for a
command. Commands of a program's own go on to work: nothing here stops them.
"""

from __future__ import annotations

import io
import re
from typing import IO, Any

from ddpcheck.report.console import plain

MOST = 10
"""How many annotations of a kind the runner keeps of one step."""

_LONGEST_MESSAGE = 4096
_LONGEST_TITLE = 255

# What .NET passes over where it looks for the begin of a line.
_BEGIN = re.compile("(?m)^([\\s\u00ad\u200b-\u200f\u2060\ufeff]*):(?=[\u00ad\u200b-\u200f\u2060\ufeff]*:)")


def command(name: str, message: str = "", **properties: str | int) -> str:
    """One line for the runner; properties that are empty are left out."""
    given = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value != "")
    return f"::{name}{' ' if given else ''}{given}::{_data(_shortened(plain(message), _LONGEST_MESSAGE))}"


def harmless(text: str) -> str:
    """A text in which the runner finds no command."""
    return _BEGIN.sub(r"\1\\:", text).replace("##[", r"##\[")


class Harmless:
    """A text stream on which no line can be taken for a command."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._held = ""

    def write(self, text: str) -> int:
        whole, newline, self._held = (self._held + text).rpartition("\n")
        self._stream.write(harmless(whole + newline))
        return len(text)

    def flush(self) -> None:
        if self._held.strip(" \t:"):  # as long as it may become a command, it waits for the rest of its line
            self._stream.write(harmless(self._held))
            self._held = ""
        self._stream.flush()

    def fileno(self) -> int:
        raise io.UnsupportedOperation("what is written past this stream could be taken for a command")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _property(text: str) -> str:
    return _data(_shortened(plain(text), _LONGEST_TITLE)).replace(":", "%3A").replace(",", "%2C")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
