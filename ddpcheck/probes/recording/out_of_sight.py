"""What a probe does is seen by nobody: not by the compiler, nor by a mode or a class of tensors of the program's.

A TorchFunctionMode, a TorchDispatchMode and the ``__torch_function__`` of a
class see every use of a tensor, down to a look at its shape. A probe is out of
their sight, and what it stands around is not. Torch's own modes stay, such as
that of fake tensors, which probes ask for; and so do simulated devices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import torch

from ddpcheck.probes.recording.compiler_frames import Callback, set_callback
from ddpcheck.probes.recording.thread_state import here

_Stack = tuple[Callable[[], int], Callable[[], Any], Callable[[Any], object]]
"""How many modes are on it, how the innermost is taken, and how one is put there."""


def _stack(kind: str, *of_any_key: None) -> _Stack:
    # A torch without these has no modes that could be set aside.
    count, pop, push = (getattr(torch._C, f"_{do}_torch_{kind}_stack", int) for do in ("len", "pop", "push_on"))
    return count, partial(pop, *of_any_key), push


_FUNCTIONS, _OPERATIONS = _stack("function"), _stack("dispatch", None)

_NEVER = object()


class Outside:
    """What sees the program, while a probe is out of its sight.

    A signal handler of the program's may raise wherever Python code begins or has called something. What is set aside
    is therefore kept here by the same native call, and ``show`` may be called again where it was interrupted.
    """

    hidden = False

    def __init__(self) -> None:
        self.depths = vars(here).copy()
        self.classes = torch._C.DisableTorchFunctionSubclass()
        self.compiling: list[Callback] = []
        self.modes: tuple[list[Any], ...] = ([], [])
        """Of functions and of operations, the innermost first."""


def hide(outside: Outside) -> None:
    """Let nobody see what this thread does from now on."""
    if outside.hidden:
        return
    outside.hidden = True
    outside.compiling += map(set_callback, (None,))
    outside.classes.__enter__()
    if _FUNCTIONS[0]():
        _aside(outside.modes[0], *_FUNCTIONS)
    if _OPERATIONS[0]():
        _aside(outside.modes[1], *_OPERATIONS)


def show(outside: Outside) -> None:
    """Let them see it again; where they do, nothing happens."""
    if not outside.hidden:
        return
    of_functions, of_operations = outside.modes
    if of_functions:
        _back(of_functions, *_FUNCTIONS)
    if of_operations:
        _back(of_operations, *_OPERATIONS)
    outside.classes.__exit__(None, None, None)
    while outside.compiling:
        set_callback(outside.compiling[-1])
        del outside.compiling[-1]
    outside.hidden = False


def recover(outside: Outside) -> None:
    """Put all back as it was before the probe, where an exception has come out of it, of ``hide`` or of ``show``."""
    show(outside)
    vars(here).clear()
    vars(here).update(outside.depths)


def _aside(modes: list[Any], count: Callable[[], int], pop: Callable[[], Any], push: Callable[[Any], object]) -> None:
    """Take all modes of a stack, and put back those that are not the program's."""
    modes += islice(iter(pop, _NEVER), count())
    for mode in reversed(modes):
        if "_mode_key" in vars(mode) or type(mode).__module__.startswith("ddpcheck."):
            push(mode)


def _back(modes: list[Any], count: Callable[[], int], pop: Callable[[], Any], push: Callable[[Any], object]) -> None:
    for _ in range(count()):
        pop()
    for mode in reversed(modes):
        push(mode)
    modes.clear()
