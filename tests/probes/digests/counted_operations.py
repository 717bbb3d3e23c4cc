"""What operations on tensors of the CPU would be on a GPU: kernels, bytes moved, and waits."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_CONCATENATED = 128
"""Tensors that one kernel of torch.cat takes."""
_NO_KERNEL = ("view", "detach", "slice", "split", "select", "alias", "expand", "unbind", "as_strided", "empty", "lift")
_WAITS = ("_local_scalar_dense", "nonzero", "item", "is_nonzero", "equal", "masked_select", "unique")


class Counting(TorchDispatchMode):
    """Counts what operations would be on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.moved = self.waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func)
        self.waits += any(word in name for word in _WAITS)
        if not any(word in name for word in _NO_KERNEL):
            given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
            made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
            self.kernels += -(-len(given) // _CONCATENATED) if "cat" in name else 1
            self.moved += sum(one.numel() * one.element_size() for one in (*given, *made))
        return result
