"""What a checkpoint's file looks like from outside: why a load of it has failed."""

from __future__ import annotations

import os
import zipfile

_REFUSED = "Weights only load failed"
_ZIP = b"PK\x03\x04"


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
    if "EOFError" in message or "pickle data was truncated" in message:
        return "cut off"
    if first.startswith(b"\x80") and _REFUSED in message:
        return "refused"
    unknown = ("UnpicklingError", "Invalid magic number", "PytorchStreamReader", "could not find MARK")
    return "not a checkpoint" if any(words in message for words in unknown) else ""
