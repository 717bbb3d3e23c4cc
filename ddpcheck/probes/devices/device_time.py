"""How long a device works on what is queued between two points, told once it has passed them; nobody waits."""

from __future__ import annotations

import torch

from ddpcheck.probes.devices import device_events
from ddpcheck.probes.devices.device_events import DeviceEvent
from ddpcheck.probes.recording import signal_exceptions
from ddpcheck.probes.recording.unwatchable_moments import asleep


class DeviceTime:
    """The time between two points on the current stream of a device; to be asked by the thread that has begun it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ends: list[DeviceEvent] = []
        self._seconds: float | None = None
        self._mark()

    def end(self) -> None:
        """Time no further than to here."""
        self._mark()

    def seconds(self) -> float | None:
        """None as long as the device has not come to the end; 0 where it cannot be timed."""
        if self._seconds is None and len(self._ends) < 2:
            self._seconds = 0.0
        if self._seconds is None and not asleep():
            try:
                begun, ended = self._ends
                if ended.is_over():
                    self._seconds = 0.0 if ended.failed else begun.seconds_until(ended)
                    self._ends.clear()
            except Exception as error:  # an error of the device
                signal_exceptions.let_through(error)
                self._seconds = 0.0
        return self._seconds

    def _mark(self) -> None:
        event = device_events.record(self._device.index, times=True) if self._device.type == "cuda" else None
        if event is not None:
            self._ends.append(event)
