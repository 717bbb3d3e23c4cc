"""A few numbers on their way between the host and a device: nobody waits for them."""

from __future__ import annotations

from typing import Any

import torch

from ddpcheck.probes.devices import device_events
from ddpcheck.probes.devices.awaited import Awaited
from ddpcheck.probes.devices.device_events import DeviceEvent


class Fetched(Awaited):
    """Numbers that a device is computing, sent to the host behind what is queued there."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self._there = numbers
        self._here: torch.Tensor | None = None
        self._event: DeviceEvent | None = None
        if numbers.device.type == "cuda":
            self._here = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
            self._here.copy_(numbers, non_blocking=True)
            self._event = device_events.record(numbers.device.index)

    def is_there(self) -> bool:
        """Whether they have arrived, or never will; any thread may ask."""
        return self._event is None or self._event.is_over()

    def told(self) -> Any:
        """The numbers, as lists; None where the device has failed. Waits where they have not arrived yet."""
        event, self._event = self._event, None
        if event is None or not event.is_over():
            # Without an event, as on a simulated device, nobody knows whether the copy is complete.
            return self._there.tolist()
        if event.failed:
            return None
        event.release()
        return self._here.tolist() if self._here is not None else None


def sent(numbers: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Numbers of the host on a device; the host goes on at once, since they are sent from pinned memory."""
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers
