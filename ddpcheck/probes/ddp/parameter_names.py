"""The names of parameters that no wrapper knows: where they were registered; and numbers for modules."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.patching import shielded

_registered: dict[int, tuple[weakref.ref[torch.Tensor], weakref.ref[Any], str]] = {}

_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_given = itertools.count()


def number_of(module: Any) -> int:
    """A number of its own for a module of this process; -1 for one that defines equality, and has no hash."""
    if type(module).__hash__ is None:
        return -1
    number = _numbers.get(module)
    if number is None:
        number = _numbers[module] = next(_given)
    return number


def numbers_within(module: Any) -> list[int]:
    """The numbers of a module and its parts, of those that have one already."""
    parts = [part for part in module.modules() if type(part).__hash__ is not None]
    return [number for part in parts if (number := _numbers.get(part)) is not None]


def watch() -> None:
    """Remember the module and the name of every parameter that is registered from now on."""
    at_registration(_note)


def at_registration(hook: Callable[[Any, str, Any], None]) -> None:
    """Have this called with every parameter that is registered, its module and its name."""
    register = getattr(nn_module, "register_module_parameter_registration_hook", None)
    if register is not None:
        register(shielded(hook))


def _note(module: Any, name: str, parameter: Any) -> None:
    if isinstance(parameter, torch.Tensor):
        key = id(parameter)
        _registered[key] = (weakref.ref(parameter), weakref.ref(module), name)
        weakref.finalize(parameter, _registered.pop, key, None).atexit = False


def name_of(parameter: torch.Tensor) -> tuple[str, bool]:
    """``Linear.weight``, and whether that module still has it; nothing for one that was never registered."""
    found = _registered.get(id(parameter))
    if found is None or found[0]() is not parameter:
        return "", False
    module = found[1]()
    if module is None:
        return found[2], False
    return f"{type(module).__name__}.{found[2]}", attribute(module, "_parameters", {}).get(found[2]) is parameter
