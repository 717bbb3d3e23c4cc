"""Values that a device is still computing."""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import Any

import pytest
import torch

import ddpcheck
from ddpcheck.probes.devices import device_events, device_numbers
from ddpcheck.probes.devices.awaited import Awaited, Derived, is_there, told
from ddpcheck.probes.devices.device_numbers import Fetched


class Coming(Awaited):
    """A value that arrives when a test says so."""

    def __init__(self, value: Any) -> None:
        self.value, self.arrived = value, False

    def is_there(self) -> bool:
        return self.arrived

    def told(self) -> Any:
        return self.value

    def give_up(self) -> None:
        if not self.arrived:
            self.value, self.arrived = b"unseen", True


def test_what_is_made_of_others_is_there_with_the_last_of_them() -> None:
    """Plain values among them always are."""
    first, second = Coming(1), Coming(2)
    both = Derived(lambda *each: sum(each), first, 10, second)
    assert not is_there({"a": [both, 5]})
    first.arrived = True
    assert not is_there([both])
    second.arrived = True
    assert is_there({"a": [both, 5]})
    assert told({"a": [both, 5], "b": "text"}) == {"a": [13, 5], "b": "text"}


class Event:
    """An event of a fake device."""

    def __init__(self) -> None:
        self.over = self.failed = self.released = False

    def is_over(self) -> bool:
        return self.over

    def release(self) -> None:
        self.released = True


class OnDevice:
    """A tensor of a fake device: its copy is not complete before the device has come so far."""

    device = torch.device("cuda:0")
    dtype = torch.int64

    def __init__(self, numbers: list[int]) -> None:
        self._own = torch.tensor(numbers)
        self.shape = self._own.shape
        self.waits = 0

    def numel(self) -> int:
        return self._own.numel()

    def tolist(self) -> list[int]:
        self.waits += 1
        return self._own.tolist()  # type: ignore[no-any-return]


@pytest.fixture
def event(monkeypatch: pytest.MonkeyPatch) -> Event:
    one = Event()
    monkeypatch.setattr(device_events, "record", lambda device: one)

    class Here:
        """The pinned copy."""

        def __init__(self, size: int, dtype: torch.dtype, device: str, pinned: bool = False) -> None:
            assert device == "cpu"
            self.dtype = dtype
            self.size = size
            self.source: Any = None
            self.pinned = pinned

        def numel(self) -> int:
            return self.size

        def pin_memory(self) -> Any:
            return Here(self.size, self.dtype, "cpu", pinned=True)

        def __getitem__(self, part: slice) -> Any:
            return self

        def view(self, shape: Any) -> Any:
            return self

        def copy_(self, source: Any, non_blocking: bool) -> None:
            assert non_blocking
            assert self.pinned
            self.source = source

        def tolist(self) -> Any:
            assert one.over, "it was read before it was complete"
            return self.source._own.tolist()

    monkeypatch.setattr(torch, "empty", Here)
    monkeypatch.setattr(device_numbers, "_free", defaultdict(list))
    return one


def test_numbers_that_have_arrived_are_read_without_waiting(event: Event) -> None:
    """As often as they are asked for; the event is used again."""
    there = OnDevice([1, 2])
    fetched = Fetched(there)  # type: ignore[arg-type]
    assert not fetched.is_there()
    event.over = True
    assert fetched.is_there()
    assert [fetched.told(), fetched.told()] == [[1, 2], [1, 2]]
    assert (there.waits, event.released) == (0, True)


def test_who_asks_too_early_waits(event: Event) -> None:
    """An assertion does."""
    there = OnDevice([1, 2])
    fetched = Fetched(there)  # type: ignore[arg-type]
    assert fetched.told() == [1, 2]
    assert there.waits == 1


def test_a_device_that_has_failed_tells_nothing(event: Event) -> None:
    """What it has sent may be anything."""
    fetched = Fetched(OnDevice([1, 2]))  # type: ignore[arg-type]
    event.over = event.failed = True
    assert fetched.is_there()
    assert fetched.told() is None


def test_who_gives_a_device_up_does_not_wait(event: Event) -> None:
    """What has arrived is told all the same."""
    there = OnDevice([1, 2])
    fetched = Fetched(there)  # type: ignore[arg-type]
    both = Derived(lambda *each: each, fetched, 3)
    both.give_up()
    assert both.is_there()
    assert both.told() == (None, 3)
    event.over = True
    arrived = Fetched(there)  # type: ignore[arg-type]
    arrived.give_up()
    assert arrived.told() == [1, 2]
    assert there.waits == 0


def test_pinned_memory_of_what_nobody_reads_is_used_again(event: Event) -> None:
    """Once it has arrived there, unless the device has failed."""
    fetched = Fetched(OnDevice([1, 2]))  # type: ignore[arg-type]
    rooms = [fetched._rooms[0]]
    del fetched
    for over, failed, again in ((False, False, False), (True, True, False), (True, False, True)):
        event.over, event.failed = over, failed
        fetched = Fetched(OnDevice([3, 4]))  # type: ignore[arg-type]
        assert (fetched._rooms[0] in rooms) is again
        rooms.append(fetched._rooms[0])
        del fetched


def test_numbers_of_several_devices_together() -> None:
    """In their order, beside plain ones; None for those of a device that has failed."""
    assert device_numbers.together([1.0, 2]) == [1.0, 2]
    with ddpcheck.simulated_devices(2):
        there = [torch.tensor(float(n), device=f"cuda:{n % 2}") for n in range(4)]
        found = device_numbers.together([*there, 7.5, torch.tensor(4.0)])
        assert isinstance(found, Derived)
        assert found.told() == [0.0, 1.0, 2.0, 3.0, 7.5, 4.0]
        (fetched,) = found._parts
        fetched[there[1].device].told = lambda: None
        assert found.told() == [0.0, None, 2.0, None, 7.5, 4.0]


def test_pinned_memory_is_used_again_and_never_given_back(event: Event) -> None:
    """Only once what was sent there has arrived: torch would mark the streams of what comes back to it."""
    first, second = Fetched(OnDevice([1, 2])), Fetched(OnDevice([3, 4]))  # type: ignore[arg-type]
    rooms = [first._rooms[0], second._rooms[0]]
    assert rooms[0] is not rooms[1]
    event.over = True
    assert (first.told(), second.told()) == ([1, 2], [3, 4])
    third = Fetched(OnDevice([5, 6]))  # type: ignore[arg-type]
    assert third._rooms[0] in rooms
    event.failed = True
    third.told()
    fourth = Fetched(OnDevice([7, 8]))  # type: ignore[arg-type]
    assert fourth._rooms[0] is not third._rooms[0]
    gone = [weakref.ref(room) for room in rooms]
    del first, second, third, fourth, rooms
    device_numbers._free.clear()
    assert all(room() is not None for room in gone)


def test_numbers_of_the_host_are_there() -> None:
    """There is nothing to send."""
    fetched = Fetched(torch.tensor([[1, 2], [3, 4]]))
    assert fetched.is_there()
    assert fetched.told() == [[1, 2], [3, 4]]
    keys = torch.tensor([1, 2])
    assert device_numbers.sent(keys, torch.device("cpu")) is keys
