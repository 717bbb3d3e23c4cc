"""A CUDA that is not there: the library of its driver and torch.cuda, with a device that a test steers."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo  # in torch 2.4 fake tensors import it, and it accepts no other torch.cuda.Event

from ddpcheck.probes.devices import device_events

CONTEXTS = {0: 0x1000, 1: 0x2000}


class FakeEvent:
    """As torch.cuda.Event: recorded on a stream, and over when the device has come so far."""

    def __init__(self, cuda: FakeCuda, enable_timing: bool = False) -> None:
        self.cuda = cuda
        self.timed = enable_timing
        self.place: tuple[int, int] | None = None
        cuda.made.append(self)
        self.cuda_event = len(cuda.made)

    def record(self, stream: Any) -> None:
        assert not self.cuda.capturing
        device = stream.device_index
        self.cuda.queued[device] += 1
        self.place = (device, self.cuda.queued[device])

    def query(self) -> bool:
        self.cuda.asked_by_torch += 1
        return self.is_passed

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.timed
        assert end.timed
        assert end.is_passed
        return 2.0

    @property
    def is_passed(self) -> bool:
        assert self.place is not None
        device, place = self.place
        return self.cuda.done[device] >= place


class FakeCuda:
    """Devices whose work is counted: ``queued`` by the program, ``done`` by whoever steers it."""

    def __init__(self) -> None:
        self.made: list[FakeEvent] = []
        self.queued = {0: 0, 1: 0}
        self.done = {0: 0, 1: 0}
        self.current = 0
        self.initialised = True
        self.capturing = False
        self.with_contexts = {0, 1}
        self.asked_by_torch = 0
        self.answer: int | None = None
        """What the driver answers to every question, in place of the truth."""
        self.here = threading.local()
        self.modes: list[int] = []
        """The mode of the asking thread at each question."""
        self.contexts: list[int] = []
        """Its context then."""

    def finish(self, device: int = 0) -> None:
        """The device does all that is queued."""
        self.done[device] = self.queued[device]

    # --- the driver's library

    def library(self) -> SimpleNamespace:
        def get(found: Any) -> int:
            found._obj.value = getattr(self.here, "context", None)
            return 0

        def make_current(context: Any) -> int:
            self.here.context = context
            return 0

        def exchange(mode: Any) -> int:
            before = getattr(self.here, "mode", 0)
            self.here.mode, mode._obj.value = mode._obj.value, before
            return 0

        def query(handle: int) -> int:
            self.modes.append(getattr(self.here, "mode", 0))
            self.contexts.append(getattr(self.here, "context", 0))
            if self.answer is not None:
                return self.answer
            return 0 if self.made[handle - 1].is_passed else 600

        return SimpleNamespace(
            cuCtxGetCurrent=get,
            cuCtxSetCurrent=make_current,
            cuThreadExchangeStreamCaptureMode=exchange,
            cuEventQuery=query,
        )


class _On:
    """As torch.cuda.device: the context of a device is current in here."""

    def __init__(self, cuda: FakeCuda, device: int) -> None:
        self.cuda, self.device = cuda, device

    def __enter__(self) -> None:
        self.before = getattr(self.cuda.here, "context", None)
        self.cuda.here.context = CONTEXTS[self.device]

    def __exit__(self, *error: object) -> None:
        self.cuda.here.context = self.before


def install(monkeypatch: pytest.MonkeyPatch, driver: bool = True) -> FakeCuda:
    """Put one in the place of CUDA; without ``driver`` as on ROCm."""
    cuda = FakeCuda()
    cuda.here.context = CONTEXTS[0]

    def opened(name: str, mode: int) -> SimpleNamespace:
        assert name == "libcuda.so.1"
        if not driver:
            raise OSError(name)
        return cuda.library()

    monkeypatch.setattr(device_events.ctypes, "CDLL", opened)
    monkeypatch.setattr(device_events.ctypes, "PyDLL", opened)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: cuda.initialised)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: cuda.capturing)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: cuda.current)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(device_index=device))
    monkeypatch.setattr(torch.cuda, "device", lambda device: _On(cuda, device))
    monkeypatch.setattr(torch.cuda, "Event", partial(FakeEvent, cuda))
    has_context = lambda device: device in cuda.with_contexts  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", has_context, raising=False)
    monkeypatch.setattr(device_events, "_pool", type(device_events._pool)(list))
    monkeypatch.setattr(device_events, "_contexts", {})
    device_events._driver.cache_clear()
    return cuda
