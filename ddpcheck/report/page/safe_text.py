"""Texts of programs on a page: no control characters, and not without end."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def safe(text: str) -> str:
    """The text with an escape for each character that is not shown, or that turns the direction of others."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))


def brief(text: str, most: int = 4_000) -> str:
    """The same, and of a very long text the beginning."""
    text = safe(text[: most + 1])
    return text if len(text) <= most else f"{text[:most]} …"
