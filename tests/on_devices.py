"""Puts a program that is written for the CPU on simulated devices: its models, and what it computes with.

The data that loaders hand out come from the CPU and are moved then, as a
program on a GPU would do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ddpcheck.device_simulation.simulation import rehearse
from ddpcheck.probes.recording import user_lines


class _Moving(TorchFunctionMode):
    """Moves new tensors that no device was named for; the CPU fills them, from the generator that was given."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.loading = False
        self._makes = _device_constructors() | {torch.from_numpy}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in self._makes or self.loading or not _is_users(kwargs or {}):
            return result
        return result.detach().to(self.device).requires_grad_(result.requires_grad)


def _is_users(given: Mapping[str, Any]) -> bool:
    """Loaders and samplers, and ddpcheck itself, make tensors for themselves; so does the worker of a loader."""
    if given.get("device") is not None or given.get("out") is not None or torch.utils.data.get_worker_info():
        return False
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return not caller.startswith(("torch.utils.data.", "ddpcheck."))


def begin() -> None:
    """Let this rank's tensors lie on its device from now on."""
    user_lines._users[__file__] = False
    rehearse(int(os.environ.get("WORLD_SIZE", 1)), "gloo")
    moving = _Moving(torch.device("cuda", int(os.environ.get("RANK", 0))))
    torch.cuda.set_device(moving.device)
    make, following = DataLoader.__init__, _BaseDataLoaderIter.__next__

    def __init__(loader: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        make(loader, _on_cpu(dataset), *args, **kwargs)

    def __next__(passing: Any) -> Any:
        moving.loading = True
        try:
            batch = following(passing)
        finally:
            moving.loading = False
        return tree_map_only(torch.Tensor, lambda one: one.to(moving.device), batch)

    DataLoader.__init__ = __init__
    _BaseDataLoaderIter.__next__ = __next__
    moving.__enter__()


def _on_cpu(value: Any) -> Any:
    """The same dataset, whose data lie on the CPU now."""
    if isinstance(value, Dataset):
        for name, one in vars(value).items():
            setattr(value, name, _on_cpu(one))
        return value
    return tree_map_only(
        (torch.Tensor, Dataset), lambda one: one.cpu() if isinstance(one, torch.Tensor) else _on_cpu(one), value
    )
