"""References to tensors that keep none of them alive, and that are let go of while torch swaps what a tensor is.

``torch.utils.swap_tensors`` refuses a tensor that has weak references. It is
called when a module is moved or cast, or loads its state, where a program has
asked for that (``torch.__future__.set_swap_module_params_on_conversion``), and
always for parameters of a class of their own, and by FSDP. A tensor that is
swapped is the same object as before: afterwards it is known by the same names.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from ddpcheck.probes.recording.patching import around

_all: dict[int, Reference] = {}
"""By the id of a tensor that is there: a tensor has one, so that there is one place to let go of it."""


class Reference:
    """Returns its tensor when it is called, and None once the tensor is gone."""

    __slots__ = ("_gone", "_held", "_weak")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._gone: list[Callable[[], object]] = []
        self._held: torch.Tensor | None = None
        self._weak: weakref.ref[torch.Tensor] | None = weakref.ref(tensor, partial(_ended, _all, id(tensor)))

    def __call__(self) -> torch.Tensor | None:
        weak = self._weak
        return weak() if weak is not None else self._held

    def when_gone(self, task: Callable[[], object]) -> None:
        """Have this done when the tensor is gone."""
        self._gone.append(task)

    def hold(self, tensor: torch.Tensor) -> None:
        """Keep it, without a weak reference."""
        self._held = tensor
        self._weak = None

    def let_go(self) -> None:
        """Keep it alive no longer."""
        if self._held is not None:
            self._weak = weakref.ref(self._held, partial(_ended, _all, id(self._held)))
            self._held = None


def _ended(known: dict[int, Reference], key: int, _: object) -> None:
    reference = known.pop(key, None)
    for task in reference._gone if reference is not None else ():
        task()


def reference(tensor: torch.Tensor) -> Reference:
    """The one reference that there is to this tensor."""
    found = _all.get(id(tensor))
    if found is None:
        found = _all[id(tensor)] = Reference(tensor)
    return found


def watch() -> None:
    """Let go of tensors while they are swapped, from now on."""
    if hasattr(torch.utils, "swap_tensors"):
        around(torch.utils, "swap_tensors", _around_swap)


def _around_swap(original: Any) -> Any:
    def swap_tensors(*args: Any, **kwargs: Any) -> Any:
        with _without_weak_references(*args, *kwargs.values()):
            return original(*args, **kwargs)

    return swap_tensors


@contextmanager
def _without_weak_references(*tensors: Any) -> Iterator[None]:
    known = []
    for tensor in tensors:
        found = _all.get(id(tensor))
        if found is not None:
            found.hold(tensor)
            known.append(found)
    try:
        yield
    finally:
        for one in known:
            one.let_go()
