"""Weights that were loaded into a model, and are not those that it trains on.

The optimizer may have copies of its own (masters in full precision, a flat
buffer) that were made before the load: then they are what they were before it,
once it has stepped. A few elements of each weight are read before the load,
after it, and when the first steps begin. Or what was loaded into are copies of
shards, which were gathered for a while: then the shards stay as they were cut.
"""

from __future__ import annotations

import ctypes
import math
import struct
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ddpcheck.evidence import TakenBack
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.files import state_dict_loads
from ddpcheck.probes.layouts import cut_from, models
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.optimizers import gradient_events, gradient_reuse
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.patching import shielded
from ddpcheck.probes.recording.tensor_references import Reference, reference

MOST = 1 << 10
"""Weights of one module."""
MOST_LOADS = 16
"""Loads of a run that are followed."""
MOST_BEGINNINGS = 64
"""Those at whose beginning it is asked what they go into."""
STEPS = 4
"""Steps after a load that are waited for: of several optimizers, each may have a part of the model."""
NEAR = 0.25
"""How near they are to what they were, measured by how far they have come from what was loaded."""


class _Weight(NamedTuple):
    name: str
    tensor: Reference
    before: list[float]
    loaded: list[float]
    lies: int
    """The address of what was loaded into."""

    def now(self) -> list[float] | None:
        tensor = self.tensor()
        return _look(tensor) if tensor is not None else None

    def is_taken_back(self) -> bool:
        now = self.now()
        if now is None or len(now) != len(self.before):
            return False
        moved = math.dist(now, self.loaded)
        return moved > 0 and math.dist(now, self.before) <= NEAR * moved


class _Load:
    """One load, until it is known what has become of it."""

    def __init__(self, module: Any, site: int, weights: list[_Weight]) -> None:
        self.module, self.kind = weakref.ref(module), type(module).__name__
        self.site, self.weights = site, weights
        self.steps = 0
        self.cuts = cut_from.made()

    def has_come_to_the_step(self) -> bool:
        """Whether nothing else was written there since."""
        return all(one.now() == one.loaded for one in self.weights)

    def has_missed_the_shards(self) -> bool:
        """Whether what the module has of these is still as it was cut from its whole, and that was before the load."""
        module = self.module()
        if module is None or cut_from.made() != self.cuts:
            return False
        names = {one.name for one in self.weights}
        held = [one for name, one in module.named_parameters() if own_name(name) in names]
        if {one.lies for one in self.weights}.intersection(map(_address, held)) - {0}:
            return False  # it was loaded into the shards themselves, and what they had been was written back since
        parts = [one for one in held if (own := readable_memory.own_part(one)) is not None and own.numel()]
        return bool(parts) and all(cut_from.of(one) is not None for one in parts)

    def tell(self, writer: recorder.Recorder, site: int, unreached: bool = False) -> None:
        writer.write(
            TakenBack(
                **writer.next(),
                kind=self.kind,
                weight=self.weights[0].name,
                of=len(self.weights),
                loaded=self.site,
                site=site,
                unreached=unreached,
            )
        )


_before: dict[int, list[tuple[str, Reference, list[float]]]] = {}
"""By the id of a module that is being loaded into: its weights."""
_loads: list[_Load] = []
_followed = 0
_begun = 0


def watch() -> None:
    """Follow what is loaded from now on."""
    state_dict_loads.load_beginnings.append(_begins)
    state_dict_loads.load_listeners.append(_loaded)
    gradient_events.STEP.also(_entered)


@shielded
def _begins(owner: str, module: Any) -> None:
    """A module that was called with gradients before may have been trained, and get a former state of its own."""
    global _begun
    writer = recorder.current()
    _before.clear()
    if owner != "module" or writer is None or _followed >= MOST_LOADS or _begun >= MOST_BEGINNINGS:
        return
    _begun += 1
    weights = [(own_name(name), one) for name, one in module.named_parameters() if one.dim() > 1]
    known = models.places(writer)
    if not weights or len(weights) > MOST or any(id(one) in known for _, one in weights):
        return
    looked = [(name, one, _look(one)) for name, one in weights]
    _before[id(module)] = [(name, reference(one), seen) for name, one, seen in looked if seen is not None]


@shielded
def _loaded(owner: str, module: Any, site: int, given: int) -> None:
    global _followed
    weights = []
    for name, one, before in _before.pop(id(module), ()):
        tensor = one()
        loaded = _look(tensor) if tensor is not None else None
        if loaded is not None and len(loaded) == len(before) and loaded != before:
            weights.append(_Weight(name, one, before, loaded, _address(tensor)))
    if weights:
        _followed += 1
        mine = {id(one.tensor()) for one in weights}
        # What is loaded once more has its last values from there.
        _loads[:] = [load for load in _loads if not any(id(one.tensor()) in mine for one in load.weights)]
        _loads.append(_Load(module, site, weights))


def _entered(
    writer: recorder.Recorder, optimizer: int, number: int, parameters: Sequence[torch.Tensor], site: int
) -> None:
    for load in list(_loads):
        load.steps += 1
        if load.steps == 1:
            if load.has_come_to_the_step():
                continue
            if load.has_missed_the_shards():
                load.tell(writer, site, unreached=True)
        elif all(one.is_taken_back() for one in load.weights):
            load.tell(writer, site)
        elif load.steps <= STEPS:
            continue
        _loads.remove(load)


def _address(tensor: torch.Tensor | None) -> int:
    """Of the rank's own part; 0 where there is none in this memory."""
    own = readable_memory.own_part(tensor) if tensor is not None else None
    lies = readable_memory.memory(own) if own is not None else None
    return lies[0] if lies is not None and lies[1] else 0


def _look(tensor: torch.Tensor) -> list[float] | None:
    """A few elements; None of what cannot be read without waiting."""
    own = readable_memory.own_part(tensor)
    if own is None or not own.numel():
        return None
    if own.dtype is not torch.bfloat16:
        return gradient_reuse.elements(own)
    lies = readable_memory.memory(own)
    if lies is None:
        return None
    start, size = lies
    halves = struct.unpack(f"{min(gradient_reuse.ELEMENTS, size // 2)}H", _bytes(start, size))
    return [float(struct.unpack("<f", struct.pack("<I", one << 16))[0]) for one in halves]


def _bytes(start: int, size: int) -> bytes:
    number = min(gradient_reuse.ELEMENTS, size // 2)
    return ctypes.string_at(start + (size // 2 - number) // 2 * 2, number * 2)
