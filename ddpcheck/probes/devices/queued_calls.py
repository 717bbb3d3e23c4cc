"""Calls that were queued on a device, between two marks each: which of them the device has not finished.

Under NCCL a collective returns as soon as it is queued. The first mark is made
before the call, the second one when it has returned, or when the program has
waited for it: by then the current stream waits for NCCL's, so that the second
mark is passed when the collective is done. A thread of ours asks for the oldest.
"""

from __future__ import annotations

import os
import weakref
from _thread import allocate_lock
from collections import deque
from typing import Any, NamedTuple

import torch
from torch.distributed import distributed_c10d as c10d

from ddpcheck.evidence import HostAhead
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.devices import asking_thread, device_events, flight_recorder
from ddpcheck.probes.devices.device_events import DeviceEvent
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.vocabulary.clock import clock

MOST = 256
"""Calls that are marked at a time. Where a device is further behind, no more are."""
LASTED = 1.0
"""Seconds for which a call must have been the oldest to be told of: at work, a device passes many."""
STALE = 3.0
"""Seconds after which an answer is worth nothing: the driver keeps who asks waiting."""

_QUEUES = "nccl"
"""How the names of backends begin whose collectives are queued: torch has several for NCCL.

gloo waits on the host, also with tensors on a GPU.
"""
_BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
"""Variables by which NCCL's calls return when they are done."""
_OFF = ("", "0", "N", "NO", "n", "no", "false", "FALSE")

_queues: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
"""By group: whether its backend for GPUs queues."""
_marked: deque[Mark] = deque()
_asking = allocate_lock()
_streams: set[tuple[int, int]] = set()
"""Those that calls were marked on."""
_marking = 0
"""The process in which calls have been marked."""


class _Oldest(NamedTuple):
    """What the last answer was."""

    at: float
    """When it came."""
    call: int = 0
    first: float = 0.0
    """Since when it has been the oldest."""
    since: float | None = None
    """Since when the device has been in it."""


_oldest = _Oldest(0.0)


class Mark:
    """A queued call between its marks."""

    __slots__ = ("_after", "_before", "_device", "_waits", "call")

    def __init__(self, call: int, device: int, before: DeviceEvent, waits: bool) -> None:
        self.call = call
        self._device, self._waits = device, waits
        self._before = before
        _streams.add(before.stream)
        self._after: DeviceEvent | None = None

    def end(self) -> None:
        """The call has returned, or the program has waited for it: from here on the stream waits for it as well."""
        self._after = device_events.record(self._device)
        if self._after is None:
            self._before.release()
            return
        _marked.append(self)
        asking_thread.begin(_look)

    @property
    def has_begun(self) -> bool:
        """Whether the device has done what comes before it."""
        return self._before.is_over()

    @property
    def is_over(self) -> bool:
        """Whether the device has finished it."""
        return self._after is None or self._after.is_over()

    @property
    def ends_on(self) -> tuple[int, int] | None:
        """The stream on which its second mark is; None for an asynchronous call, of which that says nothing."""
        return self._after.stream if self._waits and self._after is not None else None

    @property
    def is_certainly_under_way(self) -> bool:
        """Whether it is not finished.

        An asynchronous one may be done long before its second mark, behind whatever was queued in between.
        """
        mark = self._after if self._waits else self._before
        return mark is not None and mark.is_ahead()

    def release(self) -> None:
        """Give the marks back."""
        self._before.release()
        if self._after is not None:
            self._after.release()


# --- which calls are queued


def device_of(exchange: Exchange) -> int | None:
    """The GPU that a collective is queued on; None for one that is done when it returns.

    Barriers are, whatever the backend, and so are calls of objects, of which the sizes are read.
    """
    if not torch.cuda.is_initialized() or exchange.is_of_objects:  # type: ignore[no-untyped-call]
        return None
    tensors = exchange.tensors
    return device_for(exchange.group, tensors[0].device) if tensors else None


def device_for(group: Any, device: torch.device) -> int | None:
    """The GPU that a call of a group is queued on with tensors of this device; None if it is done when it returns."""
    if device.type != "cuda":
        return None
    try:
        group = c10d._get_default_group() if group is None else group
        queues = _queues.get(group)
        if queues is None:
            queues = _queues[group] = _is_queueing(c10d.get_backend_config(group))
        return (device.index or 0) if queues else None
    except Exception as error:  # another kind of group
        signal_exceptions.let_through(error)
        return None


def _is_queueing(backends: str) -> bool:
    """By what torch calls the backends of a group: ``nccl``, or ``cpu:gloo,cuda:nccl``."""
    if any(os.environ.get(name, "") not in _OFF for name in _BLOCKING):
        return False
    named = dict(part.split(":", 1) for part in str(backends).lower().split(",") if ":" in part)
    return named.get("cuda", str(backends).lower()).startswith(_QUEUES)


# --- marking them


def begin(call: int, device: int, waits: bool = True) -> Mark | None:
    """A call with this record's number is about to be queued; None where nothing is marked."""
    if len(_marked) >= MOST // 2:
        _retire()
        if len(_marked) >= MOST:
            return None
    before = device_events.record(device)
    if before is None:
        return None
    global _marking
    _marking = os.getpid()
    return Mark(call, device, before, waits)


def _retire() -> None:
    """Let go of the oldest that are over: one thread at a time, and nobody waits for the other."""
    if not _asking.acquire(False):
        return
    try:
        while _marked and _marked[0].is_over:
            _marked.popleft().release()
    finally:
        _asking.release()


def note_host_ahead(writer: recorder.Recorder) -> None:
    """Put on record what the device has not finished while the main thread has come here; nothing where it has all."""
    if not _marked:
        return
    _retire()
    calls: list[int] = []
    ahead: set[tuple[int, int]] = set()
    for mark in list(_marked):
        # A device does in order what is on one stream: each question gives up the GIL, which a busy thread then keeps.
        stream = mark.ends_on
        if stream in ahead or mark.is_certainly_under_way:
            calls.append(mark.call)
            if stream is not None:
                ahead.add(stream)
    if calls:
        writer.write(HostAhead(**writer.next(), calls=calls))


# --- asking for the oldest


def oldest() -> tuple[int | None, float | None]:
    """The oldest call that the device has not finished, once it has been so for a while, and since when it is in it."""
    found, now = _oldest, clock.now()
    if not found.call or now - found.at > STALE or found.at - found.first < LASTED:
        return None, None
    return found.call, found.since


def are_on_default_stream() -> bool:
    """Whether calls have been marked in this process, and all on the default stream of one device.

    A host waits for the stream that is current there: beside calls on another one it may wait for what is computed.
    """
    return _marking == os.getpid() and len(_streams) == 1 and all(stream == 0 for _, stream in _streams)


def _look(writer: recorder.Recorder) -> None:
    _ask()
    flight_recorder.look(writer, *oldest())


def _ask() -> None:
    global _oldest
    _retire()
    mark = _marked[0] if _marked else None
    begun = mark is not None and mark.has_begun
    now, before = clock.now(), _oldest
    if mark is None:
        _oldest = _Oldest(now)
    elif mark.call != before.call:
        _oldest = _Oldest(now, mark.call, now, now if begun else None)
    else:
        _oldest = before._replace(at=now, since=before.since or (now if begun else None))


def _forget() -> None:
    global _asking, _oldest
    _marked.clear()
    _streams.clear()
    _asking, _oldest = allocate_lock(), _Oldest(0.0)


os.register_at_fork(after_in_child=_forget)
