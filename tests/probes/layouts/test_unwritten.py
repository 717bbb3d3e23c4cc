"""Whether anything has written to memory that a module was handed out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.layouts import unwritten


@pytest.fixture
def handed_out(monkeypatch: pytest.MonkeyPatch) -> torch.nn.Parameter:
    """A parameter with the memory of to_empty(), as it is noted then."""
    monkeypatch.setattr(unwritten, "_empty", {})
    one = torch.nn.Parameter(torch.full((64, 64), 3.0))  # whatever the memory held
    unwritten._note(one)
    return one


def in_place(one: Any) -> None:
    with torch.no_grad():
        one.normal_()


def by_data(one: Any) -> None:
    one.data.fill_(1.0)


def one_element_by_data(one: Any) -> None:
    one.data[0, 0] = 1.0


def test_as_it_was_handed_out(handed_out: torch.nn.Parameter) -> None:
    assert unwritten.is_written(handed_out) is False


@pytest.mark.parametrize("write", [in_place, by_data, one_element_by_data])
def test_written(handed_out: torch.nn.Parameter, write: Any) -> None:
    """In place, or around the version counter: then the elements say it."""
    write(handed_out)
    assert unwritten.is_written(handed_out) is True


def test_what_was_never_handed_out(handed_out: torch.nn.Parameter) -> None:
    assert unwritten.is_written(torch.zeros(3)) is True


def test_on_a_device_its_elements_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the version counter says is known there; the rest is not known, and not asked of the device."""
    monkeypatch.setattr(unwritten, "_empty", {})
    monkeypatch.setattr(readable_memory, "is_on_cpu", lambda tensor: False)
    monkeypatch.setattr(unwritten, "_look", lambda tensor: pytest.fail("read on the device"))
    one = torch.zeros(8)
    unwritten._note(one)
    assert unwritten.is_written(one) is None
    one.add_(1)
    assert unwritten.is_written(one) is True


def test_it_is_forgotten_with_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another tensor may have its identity later."""
    monkeypatch.setattr(unwritten, "_empty", {})
    one = torch.zeros(8)
    unwritten._note(one)
    assert unwritten._empty
    del one
    assert not unwritten._empty


@pytest.mark.parametrize("filled", [False, True])
def test_a_wrapper_hands_on_what_is_there(monkeypatch: pytest.MonkeyPatch, filled: bool) -> None:
    """What was unwritten before a wrapper was put around it is so afterwards, in the memory that it has then."""
    monkeypatch.setattr(unwritten, "_empty", {})
    net = torch.nn.Linear(4, 4)
    for tensor in net.parameters():
        unwritten._note(tensor)
    if filled:
        for tensor in net.parameters():
            in_place(tensor)
    kept = unwritten.Kept(net)
    net.weight = torch.nn.Parameter(torch.zeros(4, 4))  # a shard, or rank 0's memory
    kept.is_over()
    assert unwritten.is_written(net.weight) is filled
