"""What is put on record of weights that are drawn over what was loaded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ddpcheck import evidence as ev
from ddpcheck.probes.checkpoints import drawn_anew
from ddpcheck.probes.files import state_dict_loads
from ddpcheck.probes.recording import recorder


@pytest.fixture(scope="module", autouse=True)
def watched():
    state_dict_loads.watch()
    drawn_anew.watch()


@pytest.fixture
def kept(monkeypatch):
    """What was drawn anew."""
    records = []
    writer = recorder.InMemory()
    monkeypatch.setattr(writer, "write", records.append)
    monkeypatch.setattr(recorder, "current", lambda: writer)
    drawn_anew.used()
    yield lambda: [(one.kind, one.weight, one.of) for one in records if isinstance(one, ev.DrawnAnew)]
    drawn_anew.used()


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def draw(*layers):
    for layer in layers:
        layer.reset_parameters()


def test_all_of_it(kept):
    model = net()
    model.load_state_dict(net().state_dict())
    draw(model[0])
    assert kept() == []
    draw(model[1])
    assert kept() == [("Sequential", "0.weight", 2)]


def test_drawn_before_the_load(kept):
    model = net()
    draw(*model)
    model.load_state_dict(net().state_dict())
    assert kept() == []


def test_constants_and_a_new_head(kept):
    model = net()
    model.load_state_dict(net().state_dict())
    nn.init.zeros_(model[0].weight)
    draw(model[1])
    assert kept() == []


def test_used_in_between(kept):
    model = net()
    model.load_state_dict(net().state_dict())
    drawn_anew.used()
    draw(*model)
    assert kept() == []


def test_a_part_of_it_was_loaded(kept):
    model = net()
    model.load_state_dict({"0.weight": torch.ones(4, 3)}, strict=False)
    draw(*model)
    assert kept() == []


def test_a_module_that_is_gone(kept):
    net().load_state_dict(net().state_dict())
    assert not drawn_anew._loads
