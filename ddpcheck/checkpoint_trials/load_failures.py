"""What a checkpoint's file looks like from outside: why a load of it has failed."""

from __future__ import annotations

import os
import pickletools
import zipfile

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
"""In the first pickle of torch's old format."""

_REFUSED = "Weights only load failed"
_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"
_PICKLES = 5
"""Pickles at the beginning of a file of torch's old format; after them come the bytes of its storages."""


def state_of(path: str, message: str) -> str:
    """``not there``, ``empty``, ``cut off``, ``newer``, ``refused`` or ``not a checkpoint``; empty for a whole file.

    ``message`` is what the load has raised, with its class before it.
    """
    if not os.path.exists(path):
        return "not there"
    if os.path.isdir(path):
        return ""
    if os.path.getsize(path) == 0:
        return "empty"
    with open(path, "rb") as file:
        first = file.read(4)
    if first == _ZIP:
        if not zipfile.is_zipfile(path):
            return "cut off"
        if "version" in message and "maximum supported" in message:
            return "newer"
        return "refused" if _REFUSED in message else ""
    if any(words in message for words in ("EOFError", "unexpected EOF", "pickle data was truncated")):
        return "cut off"
    if first.startswith(_PICKLE) and _ends_within_a_pickle(path):
        return "cut off"
    if first.startswith(_PICKLE) and _REFUSED in message:
        return "refused"
    unknown = ("UnpicklingError", "Invalid magic number", "PytorchStreamReader", "could not find MARK")
    return "not a checkpoint" if any(words in message for words in unknown) else ""


def _ends_within_a_pickle(path: str) -> bool:
    """Whether a file ends in the midst of one of its pickles; none of them is loaded for that."""
    with open(path, "rb") as file:
        for number in range(_PICKLES):
            try:
                said = [value for _, value, _ in pickletools.genops(file)]
            except ValueError:
                return not file.read(1)  # otherwise it is damaged there, and goes on
            if number == 0 and MAGIC_NUMBER not in said:
                return False
    return False
