"""Sketches on their way into a record: devices may still be computing them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ddpcheck.evidence.sketches import NUMBERS, packed
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.devices.device_numbers import Fetched


class SketchRows:
    """The sketches of one record. Each device sends its own in one transfer."""

    def __init__(self, sketches: Sequence[torch.Tensor | None], width: int = NUMBERS) -> None:
        self._size, self._width = len(sketches), width
        self._places: dict[torch.device, list[int]] = {}
        for place, one in enumerate(sketches):
            if one is not None:
                self._places.setdefault(one.device, []).append(place)
        self._stacked = {
            device: torch.stack([one for place in its if (one := sketches[place]) is not None])
            for device, its in self._places.items()
        }

    def packed(self) -> bytes | Derived:
        """As a record has them."""
        if all(device.type == "cpu" for device in self._stacked):
            return self._packed({device: stacked.tolist() for device, stacked in self._stacked.items()})
        return Derived(self._packed, {device: Fetched(stacked) for device, stacked in self._stacked.items()})

    def _packed(self, told: dict[torch.device, list[list[float]] | None]) -> bytes:
        rows: list[list[float] | None] = [None] * self._size
        for device, its in told.items():
            for place, row in zip(self._places[device], its or ()):  # noqa: B905
                rows[place] = row
        return packed(rows, self._width)
