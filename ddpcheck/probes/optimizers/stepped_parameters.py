"""Which parameters an optimizer has stepped in this rank: before the first step, all is as it was broadcast."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import optimizer as home

# By identity: tensors compare element by element, and cannot be members of a set.
_ids: set[int] = set()
_watching = False


def watch() -> None:
    """Take note of every optimizer step from now on, of optimizers that exist already, too."""
    global _watching
    if not _watching:
        _watching = True
        register = getattr(home, "register_optimizer_step_post_hook", None)
        if register is not None:
            register(_note)


def _note(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in _ids:
                _ids.add(id(parameter))
                weakref.finalize(parameter, _ids.discard, id(parameter))


def has_stepped(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether an optimizer has stepped any of these."""
    return any(id(parameter) in _ids for parameter in parameters)
