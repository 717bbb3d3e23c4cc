"""Parameters that several modules share: where, and whether they still do."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ddpcheck.evidence import Tie
from ddpcheck.probes.ddp import parameter_names
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.recording.missing_seams import attribute

_WAYS = ("ddpcheck.", "torch.nn.modules.module", "torch.nn.parameter")
"""Through which a registration comes, whoever asks for it."""

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


_ties: list[tuple[_Slot, _Slot, str]] = []
"""Two slots that were given the same parameter, and words that are the same on every rank."""


def watch() -> None:
    """See which parameters are shared from now on."""
    parameter_names.at_registration(_note)


def _note(module: Any, name: str, parameter: Any) -> None:
    """A slot is given a parameter: it is tied to those that have the same one, and to no others any more.

    What torch itself puts there, as to shard or to load, is no wish of the program's.
    """
    if _by_torch(sys._getframe(1)):
        return
    for tie in [tie for tie in _ties if tie[0].is_of(module, name) or tie[1].is_of(module, name)]:
        partner = tie[1] if tie[0].is_of(module, name) else tie[0]
        if parameter is not None and partner.holds() is parameter:
            return  # tied once more
        _ties.remove(tie)
    if not isinstance(parameter, torch.Tensor):
        return
    if len(_ties) >= MOST:
        _ties[:] = [tie for tie in _ties if tie[0].module() is not None and tie[1].module() is not None]
    if len(_ties) >= MOST:
        return
    before = parameter_names.place_before(parameter, module, name)
    if before is not None:
        owner, other = before
        words = f"{type(owner).__name__}.{other} and {type(module).__name__}.{name}"
        _ties.append((_Slot(weakref.ref(owner), other), _Slot(weakref.ref(module), name), words))


def _by_torch(frame: Any) -> bool:
    """Whether a registration is asked for by torch's own code, and not by a module's constructor or the program."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_WAYS):
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith("torch.distributed.")


def within(module: Any) -> Iterator[Tie]:
    """The ties of a model's parameters, whether or not they hold; of a slot outside of it, the name is empty."""
    if not _ties:
        return
    paths = {id(part): path for path, part in module.named_modules()}
    for first, second, words in _ties:
        names = [_path(paths, slot) for slot in (first, second)]
        there = [slot.holds() for slot in (first, second)]
        if any(names):
            yield Tie(first=names[0], second=names[1], words=words, same=there[0] is there[1] and there[0] is not None)


def _path(paths: dict[int, str], slot: _Slot) -> str:
    module = slot.module()
    if module is None or id(module) not in paths or slot.holds() is None:
        return ""
    path = paths[id(module)]
    return own_name(f"{path}.{slot.name}" if path else slot.name)
