"""What looks at the memory of devices cost: probes add it up here, and it is written down when the process ends."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from ddpcheck.evidence import LookCosts
from ddpcheck.probes.recording import recorder

_spent: dict[str, float] = {}
_open: deque[Callable[[], float | None]] = deque()
_lock = threading.Lock()


def _forget() -> None:
    """A fork has not spent what its parent has."""
    global _lock
    _lock = threading.Lock()
    _spent.clear()
    _open.clear()


os.register_at_fork(after_in_child=_forget)

_COUNTS = frozenset({"looks", "kernels", "bytes", "host_waits", "captures"})


def add(**taken: float) -> None:
    """Add what a look has cost, named as in ``LookCosts``; a 0 is worth saying: what nobody says was not measured."""
    for name, amount in taken.items():
        _spent[name] = _spent.get(name, 0) + amount


def add_later(seconds: Callable[[], float | None]) -> None:
    """Add what a device takes, once it is known."""
    _open.append(seconds)
    _settle()


def _settle() -> None:
    if not _lock.acquire(blocking=False):  # another thread does it
        return
    try:
        while _open and (known := _open[0]()) is not None:
            _open.popleft()
            add(device_milliseconds=known * 1e3)
    finally:
        _lock.release()


def write_down() -> None:
    """Write down what there was, where anything was."""
    writer = recorder.always()
    _settle()
    if writer is None or not _spent:
        return
    told = {name: int(value) if name in _COUNTS else round(value, 3) for name, value in _spent.items()}
    writer.write(LookCosts(**writer.next(), **told))  # type: ignore[arg-type]
    _spent.clear()
