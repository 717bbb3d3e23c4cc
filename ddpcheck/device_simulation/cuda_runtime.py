"""``torch.cuda`` and ``torch.accelerator`` as a training script asks them, and a clear no to the rest of them."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from ddpcheck.device_simulation.errors import NotSimulated, invalid_ordinal
from ddpcheck.device_simulation.temporary_patches import Patches

NAME = "simulated by ddpcheck on the CPU"


class Runtime(threading.local):
    """How many devices there are, and which is the current one: each thread has its own, as with CUDA."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.current = 0

    def resolve(self, device: Any) -> torch.device:
        """The device that a number, a string or a torch.device names, with its index.

        Raises CUDA's own error where there is no such device.
        """
        with torch._C.DisableTorchFunction():
            if isinstance(device, int) and not isinstance(device, bool):
                index: int | None = device
            else:
                named = torch.device(device)
                if named.type != "cuda":
                    return torch.device("cpu") if named.type == "cpu" else named
                index = named.index
            if torch.utils.data.get_worker_info() is not None:
                raise RuntimeError(
                    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
                    "the 'spawn' start method"
                )
            return torch.device("cuda", self.existing(self.current if index is None else index))

    def existing(self, index: int) -> int:
        """The index, if there is such a device."""
        if not 0 <= index < self.count:
            raise invalid_ordinal()
        return index

    def index_of(self, device: Any) -> int:
        """The index of a device as torch.cuda's functions take it: None is the current one."""
        if device is None:
            return self.current
        resolved = self.resolve(device)
        if resolved.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {resolved}")
        return int(resolved.index)

    def exchange(self, index: int) -> int:
        """Make a device the current one and return the one before; a negative index changes nothing."""
        before = self.current
        if index >= 0:
            self.current = self.existing(index)
        return before


def patch_cuda(patches: Patches, runtime: Runtime) -> None:
    """Let torch.cuda speak of the simulated devices."""
    simulated = _simulated(runtime)
    for name in getattr(torch.cuda, "__all__", ()):
        if name not in simulated and name not in _LEFT_ALONE:
            _refuse(patches, torch.cuda, name)
    for name, function in simulated.items():
        patches.set_if_there(torch.cuda, name, function)
    for home in ("memory", "nccl", "nvtx", "random"):
        owner = import_module(f"torch.cuda.{home}")
        for name, there in list(vars(owner).items()):
            if name in simulated:
                patches.set(owner, name, simulated[name])
            elif not name.startswith("_") and getattr(there, "__module__", None) == owner.__name__:
                _refuse(patches, owner, name)
    # A recurrent layer would pack its weights into one piece of memory for cuDNN.
    patches.set_if_there(torch.backends.cudnn, "is_acceptable", lambda tensor: False)


def _simulated(runtime: Runtime) -> dict[str, Callable[..., Any]]:
    def get_device_capability(device: Any = None) -> tuple[int, int]:
        # Collectives ask it for the sake of float8 alone; with this answer they do as on the CPU.
        asking = sys._getframe(1).f_globals.get("__name__", "")
        if asking.startswith("torch.distributed."):
            return 8, 0
        raise NotSimulated("torch.cuda.get_device_capability()")

    def set_device(device: Any) -> None:
        if device is None or (isinstance(device, int) and device < 0):
            return
        runtime.current = runtime.index_of(device)

    def seeded(seed: int) -> None:
        torch.default_generator.manual_seed(int(seed))

    def synchronize(device: Any = None) -> None:
        runtime.index_of(device)

    def get_rng_state(device: Any = "cuda") -> torch.Tensor:
        runtime.index_of(device)
        return torch.get_rng_state()

    def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
        runtime.index_of(device)
        torch.set_rng_state(new_state)

    def set_rng_state_all(new_states: Any) -> None:
        for index, state in enumerate(new_states):
            set_rng_state(state, index)

    return {
        "_exchange_device": runtime.exchange,
        "_is_in_bad_fork": lambda: False,
        "_lazy_call": lambda callable, **kwargs: callable(),
        "_lazy_init": lambda: None,
        "_maybe_exchange_device": runtime.exchange,
        "current_device": lambda: runtime.current,
        "device_count": lambda: runtime.count,
        "empty_cache": lambda: None,
        "get_device_capability": get_device_capability,
        "get_device_name": lambda device=None: f"cuda:{runtime.index_of(device)} {NAME}",
        "get_rng_state": get_rng_state,
        "get_rng_state_all": lambda: [torch.get_rng_state() for _ in range(runtime.count)],
        "init": lambda: None,
        "initial_seed": lambda: torch.default_generator.initial_seed(),
        "ipc_collect": lambda: None,
        "is_available": lambda: runtime.count > 0,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "is_initialized": lambda: True,
        "manual_seed": seeded,
        "manual_seed_all": seeded,
        "set_device": set_device,
        "set_rng_state": set_rng_state,
        "set_rng_state_all": set_rng_state_all,
        "synchronize": synchronize,
    }


_LEFT_ALONE = {
    "CUDAPluggableAllocator",
    "CudaError",
    "DeferredCudaCallError",
    "StreamContext",
    "cudaStatus",
    "default_generators",
    "device",
    "device_of",
    "get_arch_list",
    "get_gencode_flags",
    "has_half",
    "has_magma",
    "is_tf32_supported",
}
"""Names of torch.cuda that work on simulated devices as they are, or lead to others that say no."""


def _refuse(patches: Patches, owner: Any, name: str) -> None:
    there = getattr(owner, name, None)
    if isinstance(there, type):
        if not name.endswith(("Storage", "Tensor")):
            _refuse_class(patches, there, f"torch.cuda.{name}")
    elif callable(there):

        @functools.wraps(there)
        def refused(*args: Any, **kwargs: Any) -> Any:
            raise NotSimulated(f"{owner.__name__}.{name}()")

        patches.set(owner, name, refused)


def _refuse_class(patches: Patches, kind: type, name: str) -> None:
    # The class itself stays what it is, for annotations and isinstance.
    def refused(cls: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotSimulated(f"{name}()")

    patches.set(kind, "__new__", staticmethod(refused))


def patch_accelerator(patches: Patches, runtime: Runtime) -> None:
    """The same questions by way of torch.accelerator, where it is."""
    accelerator = getattr(torch, "accelerator", None)

    def set_index(device: Any) -> None:
        runtime.current = runtime.index_of(device)

    @contextmanager
    def device_index(device: int | None) -> Any:
        before = runtime.current if device is None else runtime.exchange(device)
        try:
            yield
        finally:
            runtime.current = before

    for name, function in {
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_idx": lambda: runtime.current,
        "current_device_index": lambda: runtime.current,
        "device_count": lambda: runtime.count,
        "device_index": device_index,
        "empty_cache": lambda: None,
        "is_available": lambda: runtime.count > 0,
        "set_device_idx": set_index,
        "set_device_index": set_index,
        "synchronize": lambda device=None: None,
    }.items():
        patches.set_if_there(accelerator, name, function)
    for name in _MEASURED:
        if accelerator is not None:
            _refuse(patches, accelerator, name)


_MEASURED = (
    "current_stream",
    "get_device_capability",
    "get_memory_info",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_stream",
)
"""Of torch.accelerator: what is about streams, memory and the hardware."""


def patch_tensor_types(patches: Patches) -> None:
    """``torch.cuda.FloatTensor`` and its like make tensors on the current device, and know them."""
    for name in [name for name in vars(torch.cuda) if name.endswith("Tensor")]:
        if hasattr(torch, name):
            patches.set(torch.cuda, name, _tensor_type(getattr(torch, name), name))


def _tensor_type(on_cpu: Any, name: str) -> Any:
    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return on_cpu(*args, **kwargs).cuda()

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, on_cpu) and bool(instance.is_cuda)

    return Meta(name, (), {"__module__": "torch.cuda"})


def patch_made_in_c(patches: Patches) -> None:
    """Generators, streams and events of a GPU: their classes are C's own, and a class stands in for each."""
    for name in ("Event", "Generator", "Stream"):
        original = getattr(torch, name, None)
        if isinstance(original, type):
            patches.set(torch, name, _stand_in(original, name))
    patches.set_if_there(torch.utils.dlpack, "to_dlpack", lambda tensor: tensor.__dlpack__())


def _stand_in(original: Any, name: str) -> Any:
    class Meta(type):
        def __call__(cls, device: Any = "cpu" if name == "Generator" else "cuda", *args: Any, **kwargs: Any) -> Any:
            if isinstance(device, int) or torch.device(device).type == "cuda":
                raise NotSimulated(f"torch.{name}() of a GPU")
            return original(device, *args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

    return Meta(name, (), {"__module__": "torch"})
