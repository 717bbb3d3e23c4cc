"""What a probe does is seen by nobody: not by the compiler, nor by a mode or a class of tensors of the program's.

A TorchFunctionMode, a TorchDispatchMode and the ``__torch_function__`` of a
class see every use of a tensor, down to a look at its shape. A probe is out of
their sight, and what it stands around is not. Torch's own modes stay, such as
that of fake tensors, which probes ask for; and so do simulated devices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ddpcheck.probes.recording.compiler_frames import Callback, set_callback

_Stack = tuple[Callable[[], int], Callable[[], Any], Callable[[Any], object]]
"""How many modes are on it, how the innermost is taken, and how one is put there."""


def _stack(kind: str, *of_any_key: None) -> _Stack:
    # A torch without these has no modes that could be set aside.
    count, pop, push = (getattr(torch._C, f"_{do}_torch_{kind}_stack", int) for do in ("len", "pop", "push_on"))
    return count, partial(pop, *of_any_key), push


_FUNCTIONS, _OPERATIONS = _stack("function"), _stack("dispatch", None)

Outside = tuple[Callback, Any, list[Any], list[Any]]
"""What sees the program: the compiler, classes of tensors, and modes, the innermost first."""


def hide() -> Outside:
    """Let nobody see what this thread does from now on; returns who has seen it before."""
    compiling = set_callback(None)
    classes = torch._C.DisableTorchFunctionSubclass()
    classes.__enter__()
    functions = _swapped(_FUNCTIONS) if _FUNCTIONS[0]() else []
    operations = _swapped(_OPERATIONS) if _OPERATIONS[0]() else []
    return compiling, classes, functions, operations


def show(outside: Outside) -> None:
    """Let them see it again."""
    compiling, classes, functions, operations = outside
    if operations:
        _swapped(_OPERATIONS, operations)
    if functions:
        _swapped(_FUNCTIONS, functions)
    classes.__exit__(None, None, None)
    if compiling is not None:
        set_callback(compiling)


def _swapped(stack: _Stack, modes: list[Any] | None = None) -> list[Any]:
    """Take all modes of a stack, and put these there; or those of them that are not the program's."""
    count, pop, push = stack
    taken = [pop() for _ in range(count())]
    for mode in reversed(taken if modes is None else modes):
        if modes is not None or "_mode_key" in vars(mode) or type(mode).__module__.startswith("ddpcheck."):
            push(mode)
    return taken
