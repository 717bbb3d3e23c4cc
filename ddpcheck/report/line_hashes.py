"""The hash by which GitHub's code scanning knows a line again after others were added above it.

GitHub calls it ``primaryLocationLineHash``. Its upload action works it out
where a file leaves it out, and warns where a file has another one; uploads by
other ways have duplicates without it. It is that of CodeQL: a polynomial over
the hundred characters from the line's first one on, white space left out, and
behind a colon, the how-many-th line with this hash it is.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter

_LENGTH = 100
_FACTOR = 37
_RANGE = 1 << 64
_END = 0xFFFF
_NEWLINE = 0x0A


def line_hashes(text: str) -> dict[int, str]:
    """The hash of every line of a file, by its number from 1 on."""
    text = re.sub("[ \t]", "", text.replace("\r\n", "\n").replace("\r", "\n"))
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    units.append(_END)
    starts = [0, *(at + 1 for at, unit in enumerate(units) if unit == _NEWLINE)]
    units.extend([0] * _LENGTH)
    seen: Counter[int] = Counter()
    found = {}
    for number, start in enumerate(starts, 1):
        value = 0
        for unit in units[start : start + _LENGTH]:
            value = (value * _FACTOR + unit) % _RANGE
        seen[value] += 1
        found[number] = f"{value:x}:{seen[value]}"
    return found
