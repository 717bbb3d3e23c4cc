"""When probes look at nothing: while operations are traced, while a CUDA graph is captured, and out of memory."""

from __future__ import annotations

from typing import Literal

import torch

from ddpcheck.evidence import Overlooked
from ddpcheck.probes.recording import recorder, signal_exceptions

_OUT_OF_MEMORY: tuple[type[BaseException], ...] = (
    MemoryError,
    *(kind for kind in (getattr(owner, "OutOfMemoryError", None) for owner in (torch, torch.cuda)) if kind),
)
_CPU_IS_OUT = ("can't allocate memory", "not enough memory")
"""In the messages of torch's allocator for the CPU, which raises a RuntimeError."""

# What torch's library says of traces; where a name is missing, nothing.
_transform = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)
_mode = getattr(torch._C, "_get_dispatch_mode", lambda key: None)
_MODES = tuple(getattr(getattr(torch._C, "_TorchDispatchModeKey", None), "__members__", {}).values())
"""Torch's own ways to see every operation: for fake tensors, for a graph of them, and to take side effects out."""

_noted: set[str] = set()


def asleep() -> bool:
    """Whether a probe has to let the program pass without a look.

    What it did would be compiled into the program, or become a part of the graph, or break the capture.
    """
    # A stream is only asked where CUDA is in use: the question must not be what initialises it.
    return torch.compiler.is_compiling() or (torch.cuda.is_initialized() and _is_capturing())  # type: ignore[no-untyped-call]


def is_tracing() -> bool:
    """Whether an operation of ours would be taken for one of the program's, or be done to no real tensor.

    torch.jit.trace writes it into its graph; within a transform of torch.func, and with fake tensors, a new tensor is
    none that can be read, then or later.
    """
    # One that is not torch's has real tensors: simulated devices are one.
    of_torch = any(type(_mode(key)).__module__.startswith("torch.") for key in _MODES)
    traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return bool(of_torch or traced or _transform() is not None)


def _is_capturing() -> bool:
    try:
        if not torch.cuda.is_current_stream_capturing():
            return False
    except Exception as error:  # after a failure on the device, every question to it fails
        signal_exceptions.let_through(error)
        return True
    overlooked("capture")
    return True


def overlooked(what: Literal["calls", "capture", "device", "memory"]) -> None:
    """Write down, once, that there was something which no probe has looked at."""
    writer = recorder.always()
    if writer is not None and what not in _noted:
        _noted.add(what)
        writer.write(Overlooked(**writer.next(), what=what))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a look failed for want of memory: nobody's fault, and no defect of ours."""
    return isinstance(error, _OUT_OF_MEMORY) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _CPU_IS_OUT)
    )
