"""Marks in what a GPU has to do, of which any thread may ask, without waiting, whether the GPU has passed them.

torch asks through CUDA's runtime, which makes a context on device 0 for a
thread that has chosen no device, and breaks the capture of a graph in another
thread. So the driver is asked, in the context in which the mark was made, and
in the mode in which a question breaks no capture.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from ddpcheck.probes.devices.device_objects import forever
from ddpcheck.probes.recording import signal_exceptions
from ddpcheck.probes.recording.unwatchable_moments import asleep

_NOT_READY, _NO_CONTEXT = 600, 201
_CAPTURING = range(900, 909)
"""The driver's answers to what may not be asked while a graph is captured: they say nothing of the event."""
_RELAXED = 2

_pool: defaultdict[tuple[int, bool], list[Any]] = defaultdict(list)
"""Events that nobody needs, by their device and whether they tell times: to make one is dearer than to record it again.

None is ever destroyed.
"""
_contexts: dict[int, int] = {}
"""The contexts of the devices on which events were recorded."""


class DeviceEvent:
    """A point on a stream of this process, in the order in which its device works."""

    __slots__ = ("_context", "_device", "_event", "_handle", "_process", "_thread", "_times", "failed", "stream")

    def __init__(self, event: Any, device: int, context: int, stream: int = 0, times: bool = False) -> None:
        self._event: Any = event
        self._times = times
        self._device = device
        self._context = context
        self._handle = int(event.cuda_event)
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self.stream = device, stream
        """The device, and which of its streams it is on."""
        self.failed = False
        """The device has failed, or is the parent's: what was queued before it is not done, as far as is known here."""

    def is_over(self) -> bool:
        """Whether the device has passed it, asked from any thread, without waiting.

        True after an error of the device as well, and in a fork: nothing waits there any more.
        """
        return bool(self._passed())

    def is_ahead(self) -> bool:
        """Whether the device has certainly not passed it, where this thread may ask."""
        return self._passed() is False and self._event is not None  # another thread may have let go of it meanwhile

    def _passed(self) -> bool | None:
        """Whether the device has passed it; None where that cannot be asked now, or here."""
        event = self._event
        if event is None:
            return True
        if os.getpid() != self._process:
            self.failed = True
            return True
        driver = _driver()
        if driver is not None and self._context:
            answer = driver.ask(self._handle, self._context)
            if answer in _CAPTURING:
                return None
            self.failed |= answer not in (0, _NOT_READY)
            return answer != _NOT_READY
        if threading.get_ident() != self._thread or asleep():
            return None
        try:
            return bool(event.query())
        except Exception as error:  # an error of the device
            signal_exceptions.let_through(error)
            self.failed = True
            return True

    def release(self) -> None:
        """Give it back, to be recorded again elsewhere; from then on it is over."""
        event, self._event = self._event, None
        if event is not None and os.getpid() == self._process:
            _pool[self._device, self._times].append(event)

    def seconds_until(self, end: DeviceEvent) -> float:
        """How long the device has worked from here to there, once it has passed both of them, which tell times."""
        return float(self._event.elapsed_time(end._event)) / 1000

    def __del__(self) -> None:
        try:
            self.release()
        except Exception:  # the interpreter ends
            return


def in_use() -> bool:
    """Whether CUDA is at work in this process, and may be asked now."""
    return bool(torch.cuda.is_initialized()) and not asleep()  # type: ignore[no-untyped-call]


def record(device: int | None = None, times: bool = False) -> DeviceEvent | None:
    """Mark this point on the current stream of a device, the current one unless another is named; ``times``: with a
    time.

    None where CUDA is not in use on it, where a graph is being captured, or torch.compile at work.
    """
    try:
        if not in_use():
            return None
        if device is None:
            device = torch.cuda.current_device()
        context = _contexts.get(device)
        if context is None:
            # The device that a thread has begun with may be none that the program uses.
            if not torch._C._cuda_hasPrimaryContext(device):  # type: ignore[attr-defined]
                return None
            context = _contexts[device] = _context_of(device)
        stream = torch.cuda.current_stream(device)
        try:
            event = _pool[device, times].pop()
            event.record(stream)
        except IndexError:
            event = _recorded_first(stream, times)
        return DeviceEvent(event, device, context, int(getattr(stream, "cuda_stream", 0)), times)
    except Exception as error:  # after an error of the device every question fails; simulated devices have no events
        signal_exceptions.let_through(error)
        return None


def stream_of(number: Any) -> int:
    """The stream that this thread uses now, of the device that a tensor lies on; 0 without one."""
    if not isinstance(number, torch.Tensor) or number.device.type != "cuda":
        return 0
    try:
        return int(torch.cuda.current_stream(number.device).cuda_stream)
    except Exception as error:  # as above
        signal_exceptions.let_through(error)
        return 0


@contextmanager
def asking() -> Iterator[None]:
    """In here this thread may have torch ask for events on a device that is in use: no context is made for it.

    And no capture is broken by it.
    """
    driver = _driver()
    if driver is None or not _contexts:
        raise RuntimeError("there is no driver to ask")
    with driver.asking(next(iter(_contexts.values()))):
        yield


def _recorded_first(stream: Any, times: bool) -> Any:
    """A new event: torch makes it when it is recorded for the first time."""
    event = forever(torch.cuda.Event(enable_timing=times))  # type: ignore[no-untyped-call]
    driver = _driver()
    if driver is None:
        event.record(stream)
        return event
    with driver.relaxed():
        event.record(stream)
    return event


def _context_of(device: int) -> int:
    """The context of a device that has one; 0 where there is no such driver."""
    driver = _driver()
    if driver is None:
        return 0
    with torch.cuda.device(device):
        return driver.context()


def _forget() -> None:
    _pool.clear()
    _contexts.clear()


class _Driver:
    """What is asked of CUDA's driver; its library has been loaded by torch already."""

    def __init__(self) -> None:
        # Those that only look at the thread's own state keep the GIL: to give it up may cost a thread its turn.
        quick, slow = (kind("libcuda.so.1", mode=_LOADED) for kind in (ctypes.PyDLL, ctypes.CDLL))
        self._get, self._exchange = quick.cuCtxGetCurrent, quick.cuThreadExchangeStreamCaptureMode
        self._set, self._query = slow.cuCtxSetCurrent, slow.cuEventQuery
        for function in (self._set, self._query):
            function.argtypes = (ctypes.c_void_p,)

    def context(self) -> int:
        """The current context of this thread; 0 for none."""
        found = ctypes.c_void_p()
        return (found.value or 0) if self._get(ctypes.byref(found)) == 0 else 0

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """What this thread asks in here breaks no capture."""
        mode = ctypes.c_int(_RELAXED)
        changed = self._exchange(ctypes.byref(mode)) == 0
        try:
            yield
        finally:
            if changed:
                self._exchange(ctypes.byref(mode))

    def ask(self, event: int, context: int) -> int:
        """What the driver says of an event of a context: 0 where it has been passed."""
        with self.asking(context) as asks:
            return int(self._query(event)) if asks else _NO_CONTEXT

    @contextmanager
    def asking(self, context: int) -> Iterator[bool]:
        """In here this thread asks in a context, and breaks no capture; whether there is this context."""
        before = self.context()
        changed = before != context and self._set(context) == 0
        try:
            with self.relaxed():
                yield changed or before == context
        finally:
            if changed:
                self._set(before or None)


_LOADED = os.RTLD_NOW | getattr(os, "RTLD_NOLOAD", 0)


@cache
def _driver() -> _Driver | None:
    try:
        return _Driver()
    except (OSError, AttributeError):  # no driver of CUDA's: ROCm
        return None


os.register_at_fork(after_in_child=_forget)
