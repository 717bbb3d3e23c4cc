"""Where parameters were registered: in which module, under which name, by which line; and numbers for modules."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as nn_module
from torch.utils.weak import WeakIdKeyDictionary

from ddpcheck.evidence import NO_SITE
from ddpcheck.probes.recording import user_lines
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.patching import shielded
from ddpcheck.probes.recording.tensor_references import Reference, reference


class _Registered(NamedTuple):
    """One time that a parameter was registered."""

    parameter: Reference
    module: weakref.ref[Any]
    name: str
    lines: tuple[user_lines.Line, ...]
    before: _Registered | None
    """The time before: a parameter that is shared has been given to several modules."""
    times: int


PLACES = 8
"""Places of a shared parameter that are remembered."""
_registered: dict[int, _Registered] = {}
"""By the id of the parameter, the last time."""

_numbers: MutableMapping[Any, int] = WeakIdKeyDictionary()
"""By identity: a module may have an equality of its own."""
_given = itertools.count()


def number_of(module: Any) -> int:
    """A number of its own for a module of this process."""
    number = _numbers.get(module)
    if number is None:
        number = _numbers[module] = next(_given)
    return number


def numbers_within(module: Any) -> list[int]:
    """The numbers of a module and its parts, of those that have one already."""
    return [number for part in module.modules() if (number := _numbers.get(part)) is not None]


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
        before = _registered.get(key)
        if before is not None and before.parameter() is not parameter:
            before = None
        if before is None:
            reference(parameter).when_gone(partial(_registered.pop, key, None))
        elif before.times >= PLACES:
            before = None
        lines = user_lines.lines_within_constructor(sys._getframe(1))
        times = before.times + 1 if before is not None else 1
        _registered[key] = _Registered(reference(parameter), weakref.ref(module), name, lines, before, times)


def _last(parameter: torch.Tensor) -> _Registered | None:
    found = _registered.get(id(parameter))
    return found if found is not None and found.parameter() is parameter else None


def name_of(parameter: torch.Tensor) -> tuple[str, bool]:
    """``Linear.weight``, and whether that module still has it; nothing for one that was never registered."""
    found = _last(parameter)
    if found is None:
        return "", False
    module = found.module()
    if module is None:
        return found.name, False
    return f"{type(module).__name__}.{found.name}", attribute(module, "_parameters", {}).get(found.name) is parameter


def place_before(parameter: torch.Tensor, module: Any, name: str) -> tuple[Any, str] | None:
    """The module and the name that had a parameter before these, where there is such a module."""
    found = _last(parameter)
    while found is not None:
        owner = found.module()
        if owner is not None and not (owner is module and found.name == name):
            return owner, found.name
        found = found.before
    return None


def line_of(parameter: torch.Tensor, module: Any = None, name: str = "") -> int:
    """The number of the line that has set a parameter, in this module where one is given."""
    found = _last(parameter)
    while found is not None and module is not None and not (found.module() is module and found.name == name):
        found = found.before
    return user_lines.chained(found.lines) if found is not None and found.lines else NO_SITE
