"""Whether anything has written to memory that a module was handed out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ddpcheck
from ddpcheck.evidence import UNSEEN
from ddpcheck.probes.devices.awaited import Derived, told
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.layouts import unwritten


@pytest.fixture
def handed_out(monkeypatch: pytest.MonkeyPatch) -> torch.nn.Parameter:
    """A parameter with the memory of to_empty(), as it is noted then."""
    monkeypatch.setattr(unwritten, "_empty", {})
    one = torch.nn.Parameter(torch.full((64, 64), 3.0))  # whatever the memory held
    unwritten._note([one], [False])
    return one


def is_written(one: Any) -> unwritten.Answer:
    (answer,) = unwritten.each_written([one])
    return told(answer)


def in_place(one: Any) -> None:
    with torch.no_grad():
        one.normal_()


def by_data(one: Any) -> None:
    one.data.fill_(1.0)


def one_element_by_data(one: Any) -> None:
    one.data[0, 0] = 1.0


def test_as_it_was_handed_out(handed_out: torch.nn.Parameter) -> None:
    assert is_written(handed_out) is False


@pytest.mark.parametrize("write", [in_place, by_data, one_element_by_data])
def test_written(handed_out: torch.nn.Parameter, write: Any) -> None:
    """In place, or around the version counter: then the elements say it."""
    write(handed_out)
    assert is_written(handed_out) is True


def test_what_was_never_handed_out(handed_out: torch.nn.Parameter) -> None:
    assert is_written(torch.zeros(3)) is True


@pytest.mark.parametrize(("write", "written"), [(None, False), (in_place, True), (by_data, True)])
def test_on_a_device_it_is_told_later(monkeypatch: pytest.MonkeyPatch, write: Any, written: bool) -> None:
    """What the version counter does not say is computed there, and nobody waits for it."""
    monkeypatch.setattr(unwritten, "_empty", {})
    with ddpcheck.simulated_devices(1):
        one = torch.full((64, 64), 3.0, device="cuda")
        unwritten._note([one], [False])
        if write:
            write(one)
        (answer,) = unwritten.each_written([one])
        assert isinstance(answer, Derived) == (write is not in_place)
        assert told(answer) is written


def test_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of it, but where the version counter does."""
    monkeypatch.setattr(unwritten, "_empty", {})
    monkeypatch.setattr(fast_digests, "queued", lambda tensors, turn: UNSEEN * len(tensors))
    one = torch.zeros(8)
    unwritten._note([one], [False])
    assert is_written(one) is None
    one.add_(1)
    assert is_written(one) is True


def test_it_is_forgotten_with_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another tensor may have its identity later."""
    monkeypatch.setattr(unwritten, "_empty", {})
    one = torch.zeros(8)
    unwritten._note([one], [False])
    assert unwritten._empty
    del one
    assert not unwritten._empty


@pytest.mark.parametrize("filled", [False, True])
def test_a_wrapper_hands_on_what_is_there(monkeypatch: pytest.MonkeyPatch, filled: bool) -> None:
    """What was unwritten before a wrapper was put around it is so afterwards, in the memory that it has then."""
    monkeypatch.setattr(unwritten, "_empty", {})
    net = torch.nn.Linear(4, 4)
    unwritten._note(list(net.parameters()), [False, False])
    if filled:
        for tensor in net.parameters():
            in_place(tensor)
    kept = unwritten.Kept(net)
    net.weight = torch.nn.Parameter(torch.zeros(4, 4))  # a shard, or rank 0's memory
    kept.is_over()
    assert is_written(net.weight) is filled
