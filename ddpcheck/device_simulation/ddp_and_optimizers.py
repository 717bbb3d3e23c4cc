"""torch's training machinery on simulated devices: DDP's reducer, optimizers, DataParallel."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ddpcheck.device_simulation.collective_rules import patch_groups
from ddpcheck.device_simulation.errors import NotSimulated
from ddpcheck.device_simulation.operator_dispatch import Dispatching
from ddpcheck.device_simulation.storages import Shared, Storages, floating
from ddpcheck.device_simulation.temporary_patches import Patches
from ddpcheck.device_simulation.torch_functions import Calling, function_modes

dist: Any = torch.distributed


def patch_ddp(patches: Patches, dispatching: Dispatching) -> None:
    """DDP's C++ flattens what lies on several devices, since it finds all on the CPU: it misplaces nothing by that."""
    storages = dispatching.storages
    if not dist.is_available():
        return

    @contextmanager
    def torchs_own() -> Iterator[None]:
        with dispatching.unchecked(), dispatching.torch_makes(floating):
            yield

    class Reducer(dist.Reducer):  # type: ignore[misc]
        """A reducer whose buckets lie where its parameters do."""

        def __init__(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> None:
            devices = {storages.device_of(parameter) for parameter in params}
            only = next(iter(devices)) if len(devices) == 1 else None
            self._bucket = Shared if only is None else lambda: only
            with dispatching.unchecked(), dispatching.torch_makes(self._bucket):
                super().__init__(params, *args, **kwargs)

        def _rebuild_buckets(self) -> Any:
            with dispatching.unchecked(), dispatching.torch_makes(self._bucket):
                return super()._rebuild_buckets()

    patch_groups(patches, dispatching.groups, storages.device_of, torchs_own)
    patches.set(dist, "Reducer", Reducer)


def patch_optimizers(patches: Patches, storages: Storages) -> None:
    """Lists of tensors are grouped by their simulated device, which torch's C++ cannot see."""

    def group(lists: Sequence[Sequence[Tensor | None]], with_indices: bool = False) -> Any:
        groups: dict[Any, tuple[list[list[Tensor | None]], list[int]]] = {}
        for position, first in enumerate(lists[0]):
            if first is None:
                raise RuntimeError("the first list of tensors to be grouped has an empty place")
            key = (storages.device_of(first), first.dtype)
            columns, indices = groups.setdefault(key, ([[] for _ in lists], []))
            for column, values in zip(columns, lists, strict=True):
                if values:
                    column.append(values[position])
            if with_indices:
                indices.append(position)
        return groups

    patches.set_if_there(torch._C, "_group_tensors_by_device_and_dtype", group)
    for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        # They ask the current stream, which there is none of.
        patches.set_if_there(torch.optim.Optimizer, name, lambda optimizer: None)


def patch_autocast(patches: Patches) -> None:
    """Autocast for CUDA chooses another arithmetic by the kernel's device, which here is the CPU."""
    original = torch.autocast.__init__

    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        enabled = kwargs.get("enabled", args[1] if len(args) > 1 else True)
        if device_type == "cuda" and enabled:
            raise NotSimulated(
                'torch.autocast("cuda")', 'Use torch.autocast("cpu") on CPU tensors, or run this on a GPU.'
            )
        original(self, device_type, *args, **kwargs)

    patches.set(torch.autocast, "__init__", __init__)


def patch_modules(patches: Patches) -> None:
    """A number names a device in ``Module.to`` also where torch has no GPU to think of."""
    parse = torch._C._nn._parse_to

    def parse_to(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], int) and not isinstance(args[0], bool):
            args = (torch.device("cuda", args[0]), *args[1:])
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        return parse(*args, **kwargs)

    patches.set(torch._C._nn, "_parse_to", parse_to)


def patch_attention(patches: Patches, calling: Calling) -> None:
    """Attention without gradients has a fused path that any function mode closes: ours is none that a GPU would see."""
    original = torch.overrides.has_torch_function

    def has_torch_function(tensors: Sequence[Any]) -> bool:
        if function_modes() != [calling]:
            return original(tensors)
        with torch.overrides._pop_mode_temporarily():
            return original(tensors)

    if hasattr(torch.overrides, "_pop_mode_temporarily"):
        patches.set(torch.overrides, "has_torch_function", has_torch_function)


def patch_threads(patches: Patches, dispatching: Dispatching, calling: Calling) -> None:
    """A thread that is started inside is simulated too; where it lives on, its modes do nothing any more."""
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        run = thread.run

        def simulated() -> None:
            with dispatching, calling:
                run()

        thread.run = simulated  # type: ignore[method-assign]
        begin(thread)

    patches.set(threading.Thread, "start", start)
