"""What the modules of a model read and made before its first backward(): equal on ranks that compute the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from ddpcheck.evidence import UNSEEN, WIDTH, ModuleValues
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.moments import unsharded
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.patching import safely
from ddpcheck.probes.recording.unwatchable_moments import asleep, is_tracing

MOST = 4096
"""Calls before one backward() that are looked at."""
DEEPEST = 3
"""Containers in each other."""


class _Call(NamedTuple):
    model: _Model
    place: int
    values: list[Any]
    """The digests of what it has read, and of what it has made."""


class _Model:
    """A model whose forwards are looked at."""

    def __init__(self, modules: list[str]) -> None:
        self.modules = modules
        self.calls: list[_Call] = []
        self.running: set[int] = set()
        """Places of modules that are being called: what one calls of itself is part of its call."""


LOOKED_AT: dict[int, tuple[_Model, int]] = {}
"""By the id of a module whose calls are looked at now: its model, and its place there."""
_models: dict[int, _Model] = {}
_written: WeakKeyDictionary[recorder.Recorder, set[int]] = WeakKeyDictionary()
"""By the file, the models of which it has been told."""


def begin(writer: recorder.Recorder, model: int, root: torch.nn.Module) -> None:
    """A forward of a model begins: the first time, it is looked at."""
    if model in _models or model in _written.get(writer, ()) or not any(map(_is_undeclared, root.parameters())):
        return
    named = [(name, one) for name, one in root.named_modules() if one is not root and _has_parameters(one)]
    _models[model] = found = _Model([name for name, _ in named])
    LOOKED_AT.update((id(one), (found, place)) for place, (_, one) in enumerate(named))


def _has_parameters(module: torch.nn.Module) -> bool:
    return any(one is not None for one in module._parameters.values())


def _is_undeclared(parameter: torch.Tensor) -> bool:
    """Whether no wrapper and no layout says which ranks hold it."""
    return (
        parameter.requires_grad
        and WRAPPERS.owner(parameter) is None
        and unsharded.sharded(parameter) is parameter
        and not readable_memory.is_dtensor(parameter)
        and not readable_memory.is_of_fsdp(parameter)
    )


def reads(module: Any, args: Any, kwargs: Any) -> _Call | None:
    """A module is called, within a model's forward."""
    known = LOOKED_AT.get(id(module))
    if known is None or asleep() or is_tracing():
        return None
    model, place = known
    if place in model.running or len(model.calls) >= MOST or not torch.is_grad_enabled():
        return None
    model.running.add(place)
    call = _Call(model, place, [])
    model.calls.append(call)
    safely(_add, call, (args, kwargs))
    return call


def makes(call: _Call, result: Any) -> None:
    """It has returned this."""
    safely(_add, call, result)
    call.model.running.discard(call.place)


def _add(call: _Call, value: Any) -> None:
    with recorder.silence(), torch.no_grad():
        tensor = next(tensors_in(value), None)
        if tensor is not None:
            call.values.append(fast_digests.queued([tensor]))


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors in Python's own containers: a class of the program's is asked for nothing."""
    kind = type(value)
    if issubclass(kind, torch.Tensor):  # isinstance() would ask the program's class
        yield value
    elif depth < DEEPEST and kind in (tuple, list, dict, OrderedDict):
        for one in dict.values(value) if issubclass(kind, dict) else value:
            yield from tensors_in(one, depth + 1)


def write(writer: recorder.Recorder, backward: int) -> None:
    """A backward() begins: write down what the forwards before it have read and made."""
    for number, model in _models.items():
        calls = [one for one in model.calls if len(one.values) == 2]
        size = len(calls) * (2 * WIDTH + 2) + sum(map(len, model.modules))
        if not calls or size > writer.room(ModuleValues) / 2:
            continue
        _written.setdefault(writer, set()).add(number)
        record = partial(
            ModuleValues,
            **writer.next(),
            model=number,
            backward=backward,
            places=[one.place for one in calls],
            modules=model.modules,
        )
        each = [Derived(_side_by_side, *(one.values[turn] for one in calls)) for turn in (0, 1)]
        later_records.write(writer, record, read=each[0], made=each[1])
    forget()


def _side_by_side(*digests: bytes) -> bytes:
    return b"".join(one or UNSEEN for one in digests)


def forget() -> None:
    """Look at no call any more: forwards without a backward() say nothing of later ones."""
    LOOKED_AT.clear()
    _models.clear()
