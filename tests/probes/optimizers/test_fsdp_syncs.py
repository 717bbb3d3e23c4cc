"""Which sharded modules are told not to reduce: inside of no_sync(), however deep, and until told otherwise."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from ddpcheck.probes.optimizers import fsdp_syncs
from ddpcheck.probes.recording import recorder


@contextmanager
def original(module: Any) -> Iterator[None]:
    yield


no_sync = fsdp_syncs._around_no_sync(original)
setting = fsdp_syncs._around_setting(lambda module, on, **more: None)


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[torch.nn.Module]:
    """Two layers, one of which may be told by itself; what is told in a test is forgotten after it."""
    monkeypatch.setattr(fsdp_syncs, "_off", weakref.WeakSet())
    recorder.begin(tmp_path, 1 << 20)
    yield torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    recorder.stop()


def is_off(module: torch.nn.Module) -> bool:
    return fsdp_syncs.is_off_for(list(module.parameters()))


def test_within_and_after(net):
    with no_sync(net):
        assert is_off(net)
        assert is_off(net[0])
    assert not is_off(net)


def test_one_within_another(net):
    """The inner one's end is not the outer one's."""
    with no_sync(net):
        with no_sync(net):
            assert is_off(net)
        assert is_off(net)
    assert not is_off(net)


def test_of_a_layer_alone(net):
    with no_sync(net[0]):
        assert is_off(net[0])
        assert not is_off(net[1])
        assert not is_off(net)


def test_it_ends_with_an_error(net):
    def failing() -> None:
        with no_sync(net):
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - the program's own
        failing()
    assert not is_off(net)


def test_a_setting_holds_until_the_next(net):
    setting(net, False)
    assert is_off(net)
    assert is_off(net)
    setting(net, True)
    assert not is_off(net)


def test_of_no_parameters(net):
    with no_sync(net):
        assert not fsdp_syncs.is_off_for([])
