"""The variable CUDA_VISIBLE_DEVICES: what it lists, and what the caller had put into it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

VARIABLE = "CUDA_VISIBLE_DEVICES"

ORDER = "CUDA_DEVICE_ORDER"
DEFAULT_ORDER = "FASTEST_FIRST"
"""What an index counts by: unset, CUDA begins with the GPU that it takes for the fastest."""

_callers: list[str | None] = []
"""What the caller had set, once this process has narrowed it for tests of its own."""


def tokens(value: str | None, number: int) -> tuple[str, ...]:
    """What the variable calls each of the ``number`` GPUs that CUDA sees, in CUDA's order.

    Unset, it is their indices. As CUDA does, reading ends at the first entry
    that is neither an index nor the beginning of a UUID (of a GPU or a MIG
    instance), so that ``0,-1,1`` is one GPU.
    """
    if value is None:
        return tuple(str(index) for index in range(number))
    found: list[str] = []
    for entry in value.split(","):
        text = entry.strip()
        index = re.match(r"\+?(\d+)", text)
        if index is not None:
            found.append(str(int(index[1])))
        elif text.startswith(("GPU-", "MIG-")):
            found.append(text)
        else:
            break
    return tuple(found[:number])


def narrow(names: tuple[str, ...]) -> None:
    """Let CUDA, once it is initialised in this process, see these GPUs alone."""
    if not _callers:
        _callers.append(os.environ.get(VARIABLE))
    os.environ[VARIABLE] = ",".join(names)


def widen() -> None:
    """Put back what the caller had set."""
    if _callers:
        restored = as_called(os.environ)
        os.environ.pop(VARIABLE, None)
        os.environ.update({k: v for k, v in restored.items() if k == VARIABLE})
        _callers.clear()


def as_called(environment: Mapping[str, str]) -> dict[str, str]:
    """This environment with the variable as the caller had set it, for processes that lease by themselves."""
    if not _callers:
        return dict(environment)
    rest = {k: v for k, v in environment.items() if k != VARIABLE}
    return rest if _callers[0] is None else rest | {VARIABLE: _callers[0]}
