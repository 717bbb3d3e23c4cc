"""The optimizers of this process, and the backward() calls that bring their gradients about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.patching import around, defect

MOST = 64
"""Optimizers whose gradients are looked at between steps: a program may have one for each parameter."""

_optimizers: MutableMapping[Any, int] = WeakIdKeyDictionary()
"""By identity, their numbers."""


class Running:
    """The outermost backward() of this process that is under way, in whichever thread its hooks are called."""

    depth = 0
    site = 0
    """Its line."""


_begins: list[Callable[[], None]] = []
_ends: list[Callable[[], None]] = []


def watch() -> None:
    """See every backward from now on."""
    around(torch.autograd, "backward", _around_backward)


def follow(optimizer: Any, number: int) -> None:
    """An optimizer was built, or was seen to step for the first time."""
    _optimizers[optimizer] = number


def number_of(optimizer: Any) -> int:
    """The number of an optimizer; -1 for one that was never met."""
    return _optimizers.get(optimizer, -1)


def each() -> Iterator[tuple[int, list[torch.Tensor]]]:
    """The optimizers that there are, each with its parameters."""
    for optimizer, number in list(_optimizers.items())[:MOST]:
        groups = getattr(optimizer, "param_groups", ())  # none while its constructor is at work
        yield number, [p for group in groups for p in group["params"]]


def at_backward(begins: Callable[[], None] | None = None, ends: Callable[[], None] | None = None) -> None:
    """Have these called around every backward() that is none of another one's."""
    if begins is not None:
        _begins.append(begins)
    if ends is not None:
        _ends.append(ends)


def is_within_backward() -> bool:
    """Whether a backward() is under way."""
    return Running.depth > 0


def _around_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(*args: Any, **kwargs: Any) -> Any:
        if recorder.current() is None:
            return original(*args, **kwargs)
        if not Running.depth:
            Running.site = user_lines.here()
            _tell(_begins)
        Running.depth += 1
        try:
            result = original(*args, **kwargs)
        finally:
            Running.depth -= 1
        if not Running.depth:
            _tell(_ends)
        return result

    return backward


def _tell(hooks: list[Callable[[], None]]) -> None:
    for hook in hooks:
        try:
            hook()
        except Exception as error:
            defect(error)
