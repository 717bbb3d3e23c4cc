"""A few numbers on their way between the host and a device: nobody waits for them."""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import torch

from ddpcheck.probes.devices import device_events
from ddpcheck.probes.devices.awaited import Awaited, Derived
from ddpcheck.probes.devices.device_events import DeviceEvent
from ddpcheck.probes.devices.device_objects import Held, forever
from ddpcheck.probes.recording import look_costs, signal_exceptions


class Fetched(Awaited):
    """Numbers that a device is computing, sent to the host behind what is queued there."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self._there: Held[torch.Tensor] | None = Held(numbers)
        self._here: torch.Tensor | None = None
        self._rooms: list[torch.Tensor] = []
        """The one that they are sent to; taken out by whoever gives it back."""
        self._event: DeviceEvent | None = None
        self._told: Any = None
        if numbers.device.type == "cuda":
            room = _room(numbers)
            self._rooms.append(room)
            self._here = room[: numbers.numel()].view(numbers.shape)
            self._here.copy_(numbers, non_blocking=True)
            self._event = device_events.record(numbers.device.index)

    def is_there(self) -> bool:
        """Whether they have arrived, or never will; any thread may ask."""
        return self._event is None or self._event.is_over()

    def told(self) -> Any:
        """The numbers, as lists; None where the device has failed, or was given up. Waits for what has not arrived."""
        there, here, event = self._there, self._here, self._event
        if there is None or there.is_of_parent:  # several may ask
            return self._told
        # Without an event, as on a simulated device, nobody knows whether the copy is complete.
        arrived = event is not None and here is not None and event.is_over()
        if here is not None and not arrived:
            look_costs.add(host_waits=1)
        if event is None or not event.failed:
            self._told = (here if arrived and here is not None else there.thing).tolist()
            if arrived and event is not None:
                event.release()
                with contextlib.suppress(IndexError):  # another thread has been here
                    _give_back(self._rooms.pop())
        self._there = self._here = self._event = None
        return self._told

    def give_up(self) -> None:
        """None, where they have not arrived."""
        if not self.is_there():
            self._there = self._here = self._event = None

    def __del__(self) -> None:
        try:
            if self._event is not None and self._rooms:
                _unread.append((self._event, self._rooms.pop()))
        except Exception:  # the interpreter ends
            return


def together(numbers: Sequence[Any]) -> list[Any] | Derived:
    """Numbers, some of which are tensors that devices are computing: these are sent at once from each device.

    None stands for those of a device that has failed.
    """
    places: dict[torch.device, list[int]] = {}
    for place, one in enumerate(numbers):
        if isinstance(one, torch.Tensor):
            places.setdefault(one.device, []).append(place)
    if not places:
        return list(numbers)

    def told(known: dict[torch.device, list[Any] | None]) -> list[Any]:
        found = list(fixed)
        for device, each in known.items():
            for place, number in zip(places[device], each or repeat(None)):  # noqa: B905
                found[place] = number
        return found

    fetched = {device: Fetched(torch.stack([numbers[place] for place in its])) for device, its in places.items()}
    fixed = [None if isinstance(one, torch.Tensor) else one for one in numbers]
    return Derived(told, fetched)


_free: defaultdict[tuple[torch.dtype, int], list[torch.Tensor]] = defaultdict(list)
"""Rooms that nothing is on its way to, by what they hold."""
_unread: deque[tuple[DeviceEvent, torch.Tensor]] = deque()
"""Rooms of numbers that nobody has asked for, and when these have arrived there."""


def _room(numbers: torch.Tensor) -> torch.Tensor:
    """Memory of the host that a device can write these to by itself.

    It is used again, and never torch's again. Of memory that comes back to it, torch marks the streams that have
    written there, whichever thread gives it back. On a stream that is being captured the mark breaks the program,
    later on; on a device that has failed it ends the process, at once.
    """
    size = 1 << (max(numbers.numel(), 1) - 1).bit_length()
    with contextlib.suppress(IndexError):  # another thread has been here
        while _unread and _unread[0][0].is_over():
            event, room = _unread.popleft()
            if not event.failed:
                _give_back(room)
    try:
        return _free[numbers.dtype, size].pop()
    except IndexError:
        with torch.inference_mode(False):
            plain = torch.empty(size, dtype=numbers.dtype, device="cpu")
            room = _pinned(plain)
        if room is not plain:
            forever(room)
        return room


def _give_back(room: torch.Tensor) -> None:
    _free[room.dtype, room.numel()].append(room)


def sent(numbers: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Numbers of the host on a device; the host goes on at once, since they are sent from pinned memory."""
    return _pinned(numbers).to(device, non_blocking=True) if device.type == "cuda" else numbers


def _pinned(numbers: torch.Tensor) -> torch.Tensor:
    """The same in memory that a device reads and writes by itself; where there is none, as on a simulated device, as
    they are.
    """
    try:
        return numbers.pin_memory()
    except RuntimeError as error:
        signal_exceptions.let_through(error)
        return numbers
