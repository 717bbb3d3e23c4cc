"""One line that says how a run goes: kept below everything else on a terminal, and written now and then elsewhere.

On a terminal the ranks write to the same screen, and nobody can ask them to
make room. So the screen's last line is taken out of the part that scrolls
(the margins of the VT100, which all terminals of today have): what the ranks
write stays above it, and nothing of theirs is changed.
"""

from __future__ import annotations

import os
import select
import time
from typing import Any, Literal

from ddpcheck.report.console import plain

Kind = Literal["auto", "line", "log", "off"]

EVERY = 60.0
"""Seconds between two lines where there is no terminal."""

OFTEN = 0.5
"""Seconds between two states of the line on a terminal."""

FEWEST = 6
"""Rows of a terminal from which on one can be spared."""


class StatusLine:
    """Shows a text again and again until it is closed; whatever goes wrong with the stream is nobody's concern."""

    def __init__(self, stream: Any, kind: Kind = "auto") -> None:
        self._fd = descriptor(stream)
        self._here = kind
        if kind == "auto":
            self._here = "log" if not _is_terminal(self._fd) else "line" if _has_margins(self._fd) else "off"
        elif kind == "line" and not _is_terminal(self._fd):
            self._here = "log"
        self._rows = 0
        """Of the terminal whose last one is ours; 0 while none is."""
        self._next = time.monotonic() + (EVERY if self._here == "log" else 0.0)

    @property
    def due(self) -> bool:
        """Whether it is time for another text."""
        return self._here != "off" and time.monotonic() >= self._next

    def show(self, text: str) -> None:
        """Show this now, in place of what was shown before."""
        now = time.monotonic()
        if self._here == "log":
            self._next = now + EVERY
            self._write(f"ddpcheck: {plain(text)}\n")
        elif self._here == "line":
            self._next = now + OFTEN
            size = _size(self._fd)
            if size is None or size.lines < FEWEST or not _in_front(self._fd):
                return
            start = "" if self._rows == size.lines else _taken(size.lines)
            self._rows = size.lines
            shown = plain(f"ddpcheck: {text}")
            if len(shown) > size.columns:
                shown = shown[: size.columns - 1] + "…"
            self._write(f"{start}\x1b7\x1b[{size.lines};1H\x1b[2K\x1b[2m{shown}\x1b[22m\x1b8")

    def close(self) -> None:
        """Give the terminal its last line back."""
        if self._rows:
            rows, self._rows = self._rows, 0
            self._write(given_back(rows), wait=True)
        self._here = "off"

    def give_back_for_parent(self) -> None:
        """In a process that outlives the one that shows the line, and cannot take it away any more."""
        if self._here == "line" and (size := _size(self._fd)) is not None:
            self._write(given_back(size.lines))

    def _write(self, text: str, wait: bool = False) -> None:
        if not wait and not takes_more(self._fd):
            return  # a state that nobody sees is nothing lost
        try:
            os.write(self._fd, text.encode("utf-8", "replace"))
        except OSError:
            self._here = "off"


def _taken(rows: int) -> str:
    """Let all rows but the last scroll: the cursor stays where it is, and a line is free below it."""
    return f"\n\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[1A"


def given_back(rows: int) -> str:
    """Let all rows scroll again, and leave nothing in the last."""
    return f"\x1b7\x1b[r\x1b[{rows};1H\x1b[2K\x1b8"


def takes_more(fd: int) -> bool:
    """Whether a write would not wait: a terminal may be stopped by Ctrl-S, and a pipe's reader may rest."""
    if fd < 0:
        return True
    ready = select.poll()
    ready.register(fd, select.POLLOUT)
    return bool(ready.poll(0))


def descriptor(stream: Any) -> int:
    """That of a stream; -1 for one that has none."""
    try:
        return int(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return -1


def _is_terminal(fd: int) -> bool:
    return fd >= 0 and os.isatty(fd)


def _has_margins(fd: int) -> bool:
    return os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown") and _in_front(fd)


def _in_front(fd: int) -> bool:
    """Whether this process may write to its terminal: one in the background would be in somebody's way."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def _size(fd: int) -> os.terminal_size | None:
    try:
        return os.get_terminal_size(fd)
    except OSError:
        return None
