"""What an optimizer has at a step beside its parameters: the state that it keeps, its rates and the scaler's factor."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

import torch

from ddpcheck.evidence import ABSENT, UNREAD
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.recording.patching import defect


def state_of(optimizer: Any, parameters: list[torch.Tensor], unseen: Collection[int]) -> dict[str, bytes]:
    """What an optimizer keeps in it is its own affair: a failure here must not cost the record of the step."""
    try:
        return _state(optimizer, parameters, unseen)
    except Exception as error:
        defect(error)
        return {}


def _state(optimizer: Any, parameters: list[torch.Tensor], unseen: Collection[int]) -> dict[str, bytes]:
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
    found = {key: fast_digests.digests(values) for key, values in tensors.items()}
    return {**found, **{key: b"".join(values) for key, values in plain.items()}}


def scale_of(known: weakref.ref[Any] | None, parameters: list[torch.Tensor], looked: bool) -> float | None:
    """The scaler's factor; None without a scaler, UNREAD where asking for it would mean to wait."""
    scaler = known() if known is not None else None
    scale = getattr(scaler, "_scale", None)
    return plain_number(scale, parameters, looked) if isinstance(scale, torch.Tensor) else None


def plain_number(value: Any, parameters: list[torch.Tensor], looked: bool) -> float:
    """A number, or a tensor of one: on a device it is read where digests of what is there have just been waited for.

    None is a rate that the optimizer finds for itself: there is none, as in a group that has no such key.
    """
    if not isinstance(value, torch.Tensor):
        return float(value) if isinstance(value, Real) else 0.0 if value is None else UNREAD
    waited = value.device.type == "cpu" or (looked and any(p.device == value.device for p in parameters))
    plain = readable_memory.strided(value) if waited else None
    return float(plain) if plain is not None and plain.numel() == 1 else UNREAD
