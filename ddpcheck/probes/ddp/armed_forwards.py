"""How often a DDP wrapper's forward has armed its reducer.

Whether a backward is reduced is decided by the forward before it: only one
through the wrapper, with gradients enabled and outside of no_sync(), prepares
the reducer (torch/nn/parallel/distributed.py, ``_post_forward``). A backward
that was not prepared for is local, without an error.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

_armed: weakref.WeakKeyDictionary[DistributedDataParallel, int] = weakref.WeakKeyDictionary()
_watching = False
_seen = False
"""Forwards are counted: this torch has what decides."""


def watch() -> None:
    """Count from now on, for every wrapper in this rank."""
    global _watching, _seen
    if _watching:
        return
    _watching = True
    original = getattr(DistributedDataParallel, "_post_forward", None)
    if original is None:
        return
    _seen = True

    def post_forward(self: DistributedDataParallel, output: Any) -> Any:
        if torch.is_grad_enabled() and getattr(self, "require_backward_grad_sync", False):
            _armed[self] = _armed.get(self, 0) + 1
        return original(self, output)

    DistributedDataParallel._post_forward = post_forward  # type: ignore[method-assign]


def all_armed_forwards() -> int:
    """The number of arming forwards of all wrappers that there are."""
    return sum(_armed.values())


def armed_forwards(module: torch.nn.Module) -> int | None:
    """The number of arming forwards; None for a module that is not wrapped, and where they cannot be seen."""
    return _armed.get(module, 0) if _seen and isinstance(module, DistributedDataParallel) else None
