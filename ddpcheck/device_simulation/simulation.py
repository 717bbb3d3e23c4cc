"""CPU tensors that behave as if they were on GPUs: the context manager."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager
from typing import Any

import torch

from ddpcheck.device_simulation.autograd import patch_engine, patch_hooks
from ddpcheck.device_simulation.cuda_runtime import (
    Runtime,
    patch_accelerator,
    patch_cuda,
    patch_made_in_c,
    patch_tensor_types,
)
from ddpcheck.device_simulation.dataparallel_replicas import patch_data_parallel
from ddpcheck.device_simulation.ddp_and_optimizers import (
    patch_attention,
    patch_autocast,
    patch_ddp,
    patch_modules,
    patch_optimizers,
    patch_threads,
)
from ddpcheck.device_simulation.operator_dispatch import Dispatching
from ddpcheck.device_simulation.storages import Storages
from ddpcheck.device_simulation.temporary_patches import Patches
from ddpcheck.device_simulation.tensor_attributes import patch_storages, patch_tensors
from ddpcheck.device_simulation.torch_functions import Calling

_active: list[simulated_devices] = []


def is_on() -> bool:
    """Whether devices are simulated in this process now."""
    return bool(_active)


class simulated_devices(ContextDecorator):
    """Let tensors lie on ``cuda:0`` to ``cuda:n-1``, none of which has to exist: their values stay on the CPU.

    Inside, a tensor that is made on or moved to ``cuda:i`` says that it is there, and an
    operation on tensors that real GPUs would refuse raises torch's own error. Results equal
    the CPU's to the bit. It is a context manager and a decorator::

        with ddpcheck.simulated_devices(2):
            layer = torch.nn.Linear(10, 1).to("cuda:1")
            layer(torch.randn(4, 10))  # RuntimeError: Expected all tensors to be on the same device …

    ``n`` is the number of devices, 1 or more. Streams, events, memory figures, graphs, kernels,
    autocast's arithmetic and generators of a GPU's own are not simulated: to use one raises
    NotSimulated. All devices draw random numbers from the CPU's generator. The simulation is that
    of the thread that enters it. Tensors made inside are ordinary CPU tensors afterwards.

    Raises ValueError where ``n`` is less than 1, TypeError where it is no number, and RuntimeError
    where a simulation is on already.
    """

    _in_place_of_nccl = False

    def __init__(self, n: int) -> None:
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"simulated_devices() takes a number of devices, 1 or more, not {n!r}")
        if n < 1:
            raise ValueError(f"simulated_devices() takes a number of devices, 1 or more, not {n}")
        self._count = n
        self._patches = Patches()
        self._modes = ExitStack()

    def _recreate_cm(self) -> simulated_devices:
        return simulated_devices(self._count)

    def __call__(self, func: Any) -> Any:
        """The function, run inside; TypeError for what would return before anything of it has run."""
        if isinstance(func, type):
            raise TypeError(
                f"@simulated_devices decorates functions, and {func.__name__} is a class: decorate its methods"
            )
        if inspect.isgeneratorfunction(func) or inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func):
            raise TypeError(
                f"@simulated_devices would be over before anything of {func.__name__} runs, which is a generator or "
                "a coroutine: write `with simulated_devices(…):` inside of it"
            )
        return super().__call__(func)

    def __enter__(self) -> simulated_devices:
        if _active:
            raise RuntimeError(
                f"simulated_devices({self._count}) was entered inside of simulated_devices({_active[0]._count}): "
                "leave the first before the second begins, or ask for enough devices at once"
            )
        storages, runtime = Storages(), Runtime(self._count)
        dispatching = Dispatching(storages, runtime.resolve)
        calling = Calling(dispatching)
        self._dispatching = dispatching
        dispatching.groups.in_place_of_nccl = self._in_place_of_nccl
        self._default = _default_device()
        _active.append(self)
        try:
            patch_engine(self._patches, dispatching, calling)
            patch_hooks(self._patches, dispatching, calling)
            patch_ddp(self._patches, dispatching)
            patch_optimizers(self._patches, storages)
            patch_autocast(self._patches)
            patch_modules(self._patches)
            patch_attention(self._patches, calling)
            patch_data_parallel(self._patches)
            patch_cuda(self._patches, runtime)
            patch_accelerator(self._patches, runtime)
            patch_made_in_c(self._patches)
            patch_tensor_types(self._patches)
            patch_threads(self._patches, dispatching, calling)
            patch_storages(self._patches, storages, runtime.resolve)
            patch_tensors(self._patches, storages)
            self._modes.enter_context(_environment("PYTORCH_DDP_USE_SIDE_STREAM", "0"))
            self._modes.enter_context(dispatching)
            self._modes.enter_context(calling)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *exception: Any) -> None:
        self._leave()

    def _leave(self) -> None:
        default = _default_device()
        if default is not self._default:
            torch.set_default_device(None if self._default is None else self._default.device)
        self._modes.close()
        self._dispatching.on = False
        self._patches.undo()
        _active.clear()


def rehearse(n: int, backend: str) -> None:
    """Simulate ``n`` devices to the end of this process, with gloo in the place of ``backend``."""
    simulation = simulated_devices(n)
    simulation._in_place_of_nccl = backend == "nccl"
    simulation.__enter__()


def _default_device() -> Any:
    """The mode that torch.set_default_device has left, or None."""
    return getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """One variable of the environment, for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
