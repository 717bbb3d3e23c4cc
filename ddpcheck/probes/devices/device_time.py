"""How long a device works on what is queued between two points, told once it has passed them; nobody waits."""

from __future__ import annotations

from typing import Any

import torch

from ddpcheck.probes.devices import device_events
from ddpcheck.probes.recording import signal_exceptions
from ddpcheck.probes.recording.unwatchable_moments import asleep


class DeviceTime:
    """The time between two points on the current stream of a device; to be asked by the thread that has begun it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ends: list[Any] = []
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
                if ended.query():
                    self._seconds = begun.elapsed_time(ended) / 1000
            except Exception as error:  # an error of the device
                signal_exceptions.let_through(error)
                self._seconds = 0.0
        return self._seconds

    def _mark(self) -> None:
        if self._device.type != "cuda" or not device_events.in_use():
            return
        try:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            self._ends.append(event)
        except Exception as error:  # simulated devices have no events
            signal_exceptions.let_through(error)
