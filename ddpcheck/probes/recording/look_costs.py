"""What looks at the memory of devices cost: probes add it up here, and it is written down when the process ends."""

from __future__ import annotations

import os

from ddpcheck.evidence import LookCosts
from ddpcheck.probes.recording import recorder

_spent: dict[str, float] = {}
os.register_at_fork(after_in_child=_spent.clear)  # a fork has not spent what its parent has

_COUNTS = frozenset({"looks", "kernels", "bytes", "host_waits", "captures"})


def add(
    looks: int | None = None,
    kernels: int | None = None,
    bytes: int | None = None,
    device_milliseconds: float | None = None,
    host_milliseconds: float | None = None,
    host_waits: int | None = None,
    captures: int | None = None,
) -> None:
    """Add what a look has cost; a measured 0 is worth saying, since what nobody says is reported as not measured."""
    for name, value in locals().copy().items():
        if value is not None:
            _spent[name] = _spent.get(name, 0) + value


def write_down() -> None:
    """Write down what there was, where anything was."""
    writer = recorder.always()
    if writer is None or not _spent:
        return
    told = {name: int(value) if name in _COUNTS else round(value, 3) for name, value in _spent.items()}
    writer.write(LookCosts(**writer.next(), **told))  # type: ignore[arg-type]
    _spent.clear()
