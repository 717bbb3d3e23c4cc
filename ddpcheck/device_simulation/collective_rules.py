"""What process groups say of tensors on devices: a collective is on one, and NCCL has none of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ddpcheck.device_simulation import torch_messages
from ddpcheck.device_simulation.temporary_patches import Patches

NAMESPACES = ("_c10d_functional", "c10d")

WITHOUT_TENSORS = ("barrier", "monitored_barrier_", "wait_tensor")
"""Operators whose tensors say nothing of a user's: torch makes them itself, or has looked at them before."""


class Groups:
    """Which process groups have gloo, and of which gloo is in the place of NCCL: all but those that ask for gloo."""

    def __init__(self) -> None:
        self.in_place_of_nccl = False
        self._gloo: set[str] = set()

    def made(self, group: Any, backend: str | None) -> None:
        """Note a group that the program asked for, with the backend that it named."""
        if backend is not None and "gloo" in backend and hasattr(group, "group_name"):
            self._gloo.add(group.group_name)

    def is_nccls(self, group: Any) -> bool:
        """Whether NCCL would be this group's backend; None is the default one."""
        return self.in_place_of_nccl and getattr(group, "group_name", group) not in self._gloo

    def refusal(self, name: str, group: Any, devices: Sequence[torch.device]) -> str | None:
        """The error of a collective over tensors on these devices, or None."""
        if name in WITHOUT_TENSORS or not devices:
            return None
        other = next((device for device in devices if device != devices[0]), None)
        if other is not None:
            mismatch = torch_messages.mismatch_of_operands(str(devices[0]), str(other))
            return f"{mismatch} (in the collective {name.rstrip('_')})"
        return torch_messages.NO_BACKEND if devices[0].type == "cpu" and self.is_nccls(group) else None


def group_of(args: Sequence[Any]) -> Any:
    """The process group, or the name of one, among a collective operator's arguments."""
    for value in args:
        if isinstance(value, torch.ScriptObject):
            try:
                return torch.distributed.ProcessGroup.unbox(value)
            except (AttributeError, RuntimeError, TypeError):
                continue  # a reduction, or a version of torch that tells no more
    return next((value for value in reversed(args) if isinstance(value, str)), None)


def patch_groups(
    patches: Patches,
    groups: Groups,
    device_of: Callable[[Tensor], torch.device],
    torchs_own: Callable[[], AbstractContextManager[None]],
) -> None:
    """Let gloo stand for NCCL where it does: objects travel by way of the GPU, and DDP wants its parameters there."""
    dist: Any = torch.distributed
    home = import_module("torch.distributed.distributed_c10d")
    new_group, verify = home.new_group, dist._verify_params_across_processes
    coalesced = dist._broadcast_coalesced

    def new(*args: Any, **kwargs: Any) -> Any:
        group = new_group(*args, **kwargs)
        groups.made(group, kwargs.get("backend", args[2] if len(args) > 2 else None))
        return group

    def on_gpus(group: Any, tensors: Sequence[Tensor]) -> None:
        if groups.is_nccls(group) and any(device_of(tensor).type == "cpu" for tensor in tensors):
            raise RuntimeError(torch_messages.NO_BACKEND)

    def verified(group: Any, tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        on_gpus(group, tensors)
        with torchs_own():
            return verify(group, tensors, *args, **kwargs)

    def broadcast(group: Any, tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        on_gpus(group, tensors)
        with torchs_own():
            return coalesced(group, tensors, *args, **kwargs)

    patches.set(home, "new_group", new)
    patches.set(dist, "new_group", new)
    patches.set(dist, "_verify_params_across_processes", verified)
    patches.set(dist, "_broadcast_coalesced", broadcast)
    for name, made in (("_get_object_coll_device", str), ("_get_pg_default_device", torch.device)):
        original = getattr(home, name, None)
        if original is not None:
            patches.set(home, name, _object_device(original, groups, made))


def _object_device(original: Callable[..., Any], groups: Groups, made: Callable[[str], Any]) -> Callable[..., Any]:
    def device(group: Any = None) -> Any:
        return made("cuda") if groups.is_nccls(group) else original(group)

    return device
