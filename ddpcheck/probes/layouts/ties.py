"""Parameters that several modules share: where, and whether they still do."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ddpcheck.evidence import Tie
from ddpcheck.probes.ddp import parameter_names
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.recording.missing_seams import attribute

_WAYS = ("ddpcheck.", "torch.nn.modules.module", "torch.nn.parameter")
"""Through which a registration comes, whoever asks for it."""

_LOAD = "load_state_dict"

MOST = 256
"""Ties that are remembered."""


class _Slot(NamedTuple):
    """A name of a module, under which it has a parameter."""

    module: weakref.ref[Any]
    name: str

    def holds(self) -> torch.Tensor | None:
        """What is there now; None where there is nothing, or no such module any more."""
        module = self.module()
        return attribute(module, "_parameters", {}).get(self.name) if module is not None else None

    def is_of(self, module: Any, name: str) -> bool:
        """Whether it is this module's name."""
        return self.module() is module and self.name == name


class _Tied:
    """Two slots that were given the same parameter."""

    __slots__ = ("loaded", "slots", "words")

    def __init__(self, first: _Slot, second: _Slot, words: str) -> None:
        self.slots = (first, second)
        self.words = words
        """The same on every rank."""
        self.loaded = False
        """A load has put tensors of its own there (assign=True)."""

    def holds(self) -> list[torch.Tensor | None]:
        """What is there now."""
        return [slot.holds() for slot in self.slots]


_ties: list[_Tied] = []


def watch() -> None:
    """See which parameters are shared from now on."""
    parameter_names.at_registration(_note)


def _note(module: Any, name: str, parameter: Any) -> None:
    """A slot is given a parameter: it is tied to those that have the same one, and to no others any more.

    What torch itself puts there, as to shard, is no wish of the program's; nor is what a load puts there.
    """
    asker = _asker(sys._getframe(1))
    if asker.startswith("torch.distributed."):
        return
    loads = asker == _LOAD
    for tie in [tie for tie in _ties if any(slot.is_of(module, name) for slot in tie.slots)]:
        if loads:
            tie.loaded = True
            continue
        partner = tie.slots[1] if tie.slots[0].is_of(module, name) else tie.slots[0]
        if parameter is not None and partner.holds() is parameter:
            return  # tied once more
        _ties.remove(tie)
    if loads or not isinstance(parameter, torch.Tensor):
        return
    if len(_ties) >= MOST:
        _ties[:] = [tie for tie in _ties if all(slot.module() is not None for slot in tie.slots)]
    if len(_ties) >= MOST:
        return
    before = parameter_names.place_before(parameter, module, name)
    if before is not None:
        owner, other = before
        words = f"{type(owner).__name__}.{other} and {type(module).__name__}.{name}"
        _ties.append(_Tied(_Slot(weakref.ref(owner), other), _Slot(weakref.ref(module), name), words))


def _asker(frame: Any) -> str:
    """The module whose code asks for a registration: a constructor, the program, torch itself; or that it is a load."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_WAYS):
        if frame.f_code.co_name == _LOAD and frame.f_globals["__name__"] == torch.nn.modules.module.__name__:
            return _LOAD
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""


def within(module: Any) -> Iterator[Tie]:
    """The ties of a model's parameters, whether or not they hold; of a slot outside of it, the name is empty."""
    if not _ties:
        return
    paths = {id(part): path for path, part in module.named_modules()}
    for tie in _ties:
        names = [_path(paths, slot) for slot in tie.slots]
        first, second = tie.holds()
        same = first is second and first is not None
        # A checkpoint in which they differ is that of a model without the tie.
        if any(names) and (same or not tie.loaded or _are_equal(first, second)):
            yield Tie(first=names[0], second=names[1], words=tie.words, same=same)


def _are_equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether both are seen to be the same numbers; what would have to be waited for is not.

    Of what is sharded by now, this rank's parts are compared, where both lie alike.
    """
    if one is None or other is None or not _lie_alike(one, other):
        return False
    mine, its = readable_memory.own_part(one), readable_memory.own_part(other)
    if mine is None or its is None or mine.shape != its.shape or not mine.numel():
        return False
    if not (readable_memory.is_on_cpu(one) and readable_memory.is_on_cpu(other)):
        return False
    return torch.equal(mine.detach(), its.detach())


def _lie_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both are plain parameters, or DTensors of one shape that are dealt out alike."""
    if {type(one), type(other)} == {torch.nn.Parameter}:
        return True
    if not (readable_memory.is_dtensor(one) and readable_memory.is_dtensor(other)) or one.shape != other.shape:
        return False
    return bool(one.placements == other.placements and one.device_mesh == other.device_mesh)  # type: ignore[attr-defined]


def _path(paths: dict[int, str], slot: _Slot) -> str:
    module = slot.module()
    if module is None or id(module) not in paths or slot.holds() is None:
        return ""
    path = paths[id(module)]
    return own_name(f"{path}.{slot.name}" if path else slot.name)
