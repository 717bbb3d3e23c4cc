"""What an optimizer has at a step beside its parameters: the state that it keeps, its rates and the scaler's factor."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

import torch

from ddpcheck.evidence import ABSENT, UNREAD, StateOfAnotherWhole
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.devices.device_numbers import Fetched
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.patching import defect, shielded

Digests = bytes | fast_digests.Queued


def state_of(optimizer: Any, parameters: list[torch.Tensor], unseen: Collection[int]) -> dict[str, Digests]:
    """What an optimizer keeps in it is its own affair: a failure here must not cost the record of the step."""
    try:
        return _state(optimizer, parameters, unseen)
    except Exception as error:
        defect(error)
        return {}


def _state(optimizer: Any, parameters: list[torch.Tensor], unseen: Collection[int]) -> dict[str, Digests]:
    """Digests of the state by its keys, for each parameter: of what has the parameter's size, or is one number.

    The rest, such as the factors of a matrix, may be shared out among the ranks as it pleases the optimizer.
    """
    tensors: dict[str, list[torch.Tensor | None]] = {}
    plain: dict[str, list[bytes]] = {}
    for place, parameter in enumerate(parameters):
        if place in unseen:
            continue
        kept = optimizer.state.get(parameter)
        # An optimizer of the user's own may keep anything there, such as a tensor.
        for key, value in kept.items() if isinstance(kept, Mapping) else ():
            if isinstance(value, torch.Tensor):
                if value.numel() in (1, parameter.numel()):
                    tensors.setdefault(str(key), [None] * len(parameters))[place] = value
            elif isinstance(value, (int, float)):
                plain.setdefault(str(key), [ABSENT] * len(parameters))[place] = fast_digests.number_digest(value)
    found: dict[str, Digests] = {key: fast_digests.queued(values) for key, values in tensors.items()}
    return {**found, **{key: b"".join(values) for key, values in plain.items()}}


@shielded
def note_wholes(
    writer: recorder.Recorder, optimizer: Any, number: int, parameters: list[torch.Tensor], parts: list[int], site: int
) -> None:
    """Put down state that is no part of what its parameter is a part of, though it lies as that does."""
    found = []
    for place in parts:
        parameter: Any = parameters[place]
        kept = optimizer.state.get(parameter)
        for key, value in kept.items() if isinstance(kept, Mapping) else ():
            if readable_memory.is_dtensor(value) and _is_of_another_whole(value, parameter):
                found.append((place, str(key), tuple(value.shape)))
    if found:
        places, keys, wholes = map(list, zip(*found, strict=True))
        record = StateOfAnotherWhole(
            **writer.next(), optimizer=number, places=places, keys=keys, wholes=wholes, site=site
        )
        writer.write(record)


def _is_of_another_whole(state: Any, parameter: Any) -> bool:
    if state.placements != parameter.placements or state.device_mesh != parameter.device_mesh:
        return False
    own, its = readable_memory.part(parameter), readable_memory.part(state)
    if own is None or its is None or not own.numel() or own.shape != its.shape:
        return False
    return tuple(state.shape) != tuple(parameter.shape)


def scale_of(known: weakref.ref[Any] | None, looked: bool) -> float | Derived | None:
    """The scaler's factor; None without a scaler."""
    scaler = known() if known is not None else None
    scale = getattr(scaler, "_scale", None)
    return plain_number(scale, looked) if isinstance(scale, torch.Tensor) else None


def plain_number(value: Any, looked: bool) -> float | Derived:
    """A number, or a tensor of one: on a device it is asked for at a step that is looked at, and UNREAD at another.

    None is a rate that the optimizer finds for itself: there is none, as in a group that has no such key.
    """
    if not isinstance(value, torch.Tensor):
        return float(value) if isinstance(value, Real) else 0.0 if value is None else UNREAD
    plain = readable_memory.strided(value) if looked or value.device.type == "cpu" else None
    if plain is None or plain.numel() != 1:
        return UNREAD
    if plain.device.type == "cpu":
        return float(plain)
    with torch.no_grad():
        return Derived(_first, Fetched(plain.reshape(1).clone()))  # the program may change it before it is read


def _first(numbers: list[float] | None) -> float:
    return UNREAD if numbers is None else float(numbers[0])
