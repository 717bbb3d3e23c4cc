"""What a rank loads into its modules, optimizers, schedulers and scalers."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler

from ddpcheck import seams
from ddpcheck.evidence import StateLoaded
from ddpcheck.probes.ddp.parameter_names import number_of
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.optimizers import gradient_events, steps
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import missing_seams, recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.call_frames import caller
from ddpcheck.probes.recording.patching import around, looking_like, named, safely
from ddpcheck.probes.recording.result_use import is_thrown_away

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""

_own = threading.local()
_taken: dict[int, tuple[weakref.ref[Any], int]] = {}
"""By the id of a state dict that a module has given: the optimizer steps that had been made by then."""
_NAMES = 2_000
"""The most names of missing keys that are told."""

load_listeners: list[Callable[[str, Any, int, int], None]] = []
"""Told when state was loaded: into a ``module``, ``optimizer`` …, into which, from which line, how many entries."""


def watch() -> None:
    """Record every load_state_dict from now on."""
    around(torch.nn.Module, "load_state_dict", _around("module", _module))
    _watch_taking()
    around(torch.optim.Optimizer, "load_state_dict", _around("optimizer", _optimizer))
    schedulers = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)
    for kind in vars(lr_scheduler).values():
        if isinstance(kind, type) and issubclass(kind, schedulers) and "load_state_dict" in vars(kind):
            around(kind, "load_state_dict", _around("scheduler", _nothing))
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None)
    if scaler is not None:
        around(scaler, "load_state_dict", _around("scaler", _nothing))


def _watch_taking() -> None:
    """See when modules give their state: where they fill the dict, so that no level of a tree has a frame more."""
    name = "_save_to_state_dict"
    original = vars(torch.nn.Module).get(name)
    if original is None:
        missing_seams.note(seams.find(torch.nn.Module, name))
        return

    @looking_like(original)
    def _save_to_state_dict(self: Any, destination: Any, prefix: Any, *args: Any, **kwargs: Any) -> Any:
        if not prefix and type(destination) is OrderedDict:
            safely(_take, destination)
        return original(self, destination, prefix, *args, **kwargs)

    setattr(torch.nn.Module, name, named(_save_to_state_dict, torch.nn.Module, name))


def _take(state: Any) -> None:
    """A module begins to give its state: it is known by the steps that had been made."""
    key = id(state)
    if key not in _taken and recorder.current() is not None:
        _taken[key] = weakref.ref(state, lambda _: _taken.pop(key, None)), steps.steps_so_far()


def _is_outdated(state: Any) -> bool:
    """Whether a state dict was taken from a module before some step."""
    ref, made = _taken.get(id(state), (None, 0))
    return ref is not None and ref() is state and steps.steps_so_far() > made


def _around(
    owner: Literal["module", "optimizer", "scheduler", "scaler"],
    describe: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], dict[str, Any]],
) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
            writer = recorder.current()
            if writer is None or getattr(_own, "inside", False):
                return original(self, *args, **kwargs)
            site = user_lines.here()
            given = kwargs.get("state_dict", args[0] if args else ())
            itself = _itself(self, given) if owner == "module" else []
            outdated = bool(itself) and _is_outdated(given)
            _own.inside = True
            try:
                result = original(self, *args, **kwargs)
            finally:
                _own.inside = False
            try:
                described = describe(self, result, args, kwargs)
            except Exception as error:  # a class of the user's own may do anything when it is looked at
                signal_exceptions.let_through(error)
                described = _nothing(self, result, args, kwargs)
            kind = type(self).__name__
            record = partial(StateLoaded, **writer.next(), owner=owner, kind=kind, site=site)
            later_records.write(writer, partial(record, itself=itself, outdated=outdated), **described)
            for told in load_listeners:
                told(owner, self, site, len(given))
            return result

        return load_state_dict

    return make


def _itself(module: Any, given: Any) -> list[str]:
    """The names under which a module is given its own memory, which a load then leaves as it is."""
    try:
        named = module.named_parameters()
        return [name for name, one in named if name in given and _is_one(one, given[name])][:_NAMES]
    except Exception as error:  # what is given may be no state dict, and a class of the user's own may do anything
        signal_exceptions.let_through(error)
        return []


def _is_one(parameter: torch.Tensor, given: Any) -> bool:
    mine = readable_memory.own_part(parameter)
    other = readable_memory.own_part(given) if isinstance(given, torch.Tensor) else None
    if mine is None or other is None or not mine.numel() or mine.shape != other.shape:
        return False
    return bool(mine.data_ptr()) and mine.data_ptr() == other.data_ptr()


def _nothing(owner: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"missing": [], "unexpected": [], "total": 0, "strict": True}


def _optimizer(optimizer: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**_nothing(optimizer, result, args, kwargs), "optimizer": gradient_events.number_of(optimizer)}


def _kinds(named: Any, names: Any) -> list[str]:
    each = (named.get(name) for name in list(names)[:_NAMES])
    return [fast_digests.kind(one) if isinstance(one, torch.Tensor) else type(one).__name__ for one in each]


def _module(module: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    parameters = dict(module.named_parameters())
    wrapper = next((w for w in map(WRAPPERS.owner, parameters.values()) if w is not None), None)
    held = wrapper is not None and wrapper[1].ddp() is not None
    # Parameters that no wrapper reduces may be another on each rank, as may buffers.
    compared = [
        p for p in parameters.values() if (not held or WRAPPERS.is_reduced(p)) and not readable_memory.unseen(p)
    ]
    given = kwargs.get("state_dict", args[0] if args else ())
    missing, unexpected = (getattr(result, which, ()) for which in ("missing_keys", "unexpected_keys"))
    kinds = {}
    if missing and unexpected:
        own = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
        kinds = {"missing_kinds": _kinds(own, missing), "unexpected_kinds": _kinds(given, unexpected)}
    return {
        **kinds,
        "model": number_of(module.module if isinstance(module, DistributedDataParallel) else module),
        "missing": [str(name) for name in missing][:_NAMES],
        "unexpected": [str(name) for name in unexpected][:_NAMES],
        "fitting": max(0, len(given) - len(unexpected)),
        "thrown_away": bool(unexpected) and is_thrown_away(caller()),
        "total": len(parameters) + sum(1 for _ in module.named_buffers()),
        "strict": bool(kwargs.get("strict", args[1] if len(args) > 1 else True)),
        "assigned": bool(kwargs.get("assign", args[2] if len(args) > 2 else False)),
        "digest": Derived(lambda each: fast_digests.text_digest(each.hex()).encode(), fast_digests.queued(compared, 0)),
        "wrapped": held,
        "wrapper": wrapper[1].number if wrapper is not None and held else None,
    }
