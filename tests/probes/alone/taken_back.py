"""What is put on record of weights that are what they were before a load, once an optimizer has stepped."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ddpcheck import evidence as ev
from ddpcheck.probes.checkpoints import taken_back
from ddpcheck.probes.files import state_dict_loads
from ddpcheck.probes.layouts import cut_from, models
from ddpcheck.probes.recording import recorder


@pytest.fixture(scope="module", autouse=True)
def watched():
    state_dict_loads.watch()
    taken_back.watch()


@pytest.fixture
def kept(monkeypatch):
    """What was taken back."""
    records = []
    writer = recorder.InMemory()
    monkeypatch.setattr(writer, "write", records.append)
    monkeypatch.setattr(recorder, "current", lambda: writer)
    monkeypatch.setattr(taken_back, "_begun", 0)
    monkeypatch.setattr(taken_back, "_followed", 0)
    taken_back._loads.clear()
    yield lambda: [
        (one.kind, one.weight, one.of, *["unreached"] * one.unreached)
        for one in records
        if isinstance(one, ev.TakenBack)
    ]
    taken_back._loads.clear()


def net(dtype=torch.float32):
    return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 4)).to(dtype)


def begin_step():
    taken_back._entered(recorder.current(), 0, 0, [], 0)


def step(model, masters=None):
    """An optimizer's step on the model's own weights, or on masters that are copied over them."""
    begin_step()
    with torch.no_grad():
        for own, master in zip(model.parameters(), masters or model.parameters(), strict=True):
            master.add_(torch.full_like(master, 1e-2))
            own.copy_(master)


def masters_of(model):
    return [p.detach().clone().float() for p in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masters_that_were_made_before(kept, dtype):
    model = net(dtype)
    masters = masters_of(model)
    model.load_state_dict(net(dtype).state_dict())
    step(model, masters)
    assert kept() == []
    begin_step()
    assert kept() == [("Sequential", "0.weight", 2)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masters_that_were_made_afterwards(kept, dtype):
    model = net(dtype)
    model.load_state_dict(net(dtype).state_dict())
    masters = masters_of(model)
    for _ in range(6):
        step(model, masters)
    assert kept() == []
    assert not taken_back._loads


def test_the_models_own_weights(kept):
    model = net()
    model.load_state_dict(net().state_dict())
    step(model)
    begin_step()
    assert kept() == []


def test_what_was_written_there_before_the_step(kept):
    """An average that was swapped in by a load, and out by a copy."""
    model = net()
    before = masters_of(model)
    model.load_state_dict(net().state_dict())
    with torch.no_grad():
        for own, one in zip(model.parameters(), before, strict=True):
            own.copy_(one)
    step(model)
    begin_step()
    assert kept() == []


def test_what_is_loaded_once_more(kept):
    model = net()
    first = {name: one.clone() for name, one in model.state_dict().items()}
    model.load_state_dict(net().state_dict())
    model.load_state_dict(first)
    step(model)
    begin_step()
    assert kept() == []


def test_a_model_that_was_trained(kept, monkeypatch):
    """It may get a former state of its own, and make the same step again."""
    model = net()
    known = {id(one): None for one in model.parameters()}
    monkeypatch.setattr(models, "places", lambda _: known)
    masters = masters_of(model)
    model.load_state_dict(net().state_dict())
    step(model, masters)
    begin_step()
    assert kept() == []


def test_a_part_of_it_is_taken_back(kept):
    model = net()
    masters = masters_of(model)
    state = net().state_dict()
    model.load_state_dict(state)
    for place, name in ((2, "1.weight"), (3, "1.bias")):
        masters[place].copy_(state[name])
    step(model, masters)
    begin_step()
    assert kept() == []


def load_into_gathered(monkeypatch, cut=True, later=False):
    """FSDP gathers its parameters, each of which has the whole for a while; then it has its shard again."""
    model = net()
    shards = {id(one): one.detach().clone() for one in model.parameters()}
    monkeypatch.setattr(
        cut_from, "of", lambda one: cut_from.Cut(b"", b"", (0, 1)) if cut and id(one) in shards else None
    )
    model.load_state_dict(net().state_dict())
    for one in model.parameters():
        one.data = shards[id(one)]
    if later:
        monkeypatch.setattr(cut_from, "_made", cut_from._made + 1)
    begin_step()


def test_copies_of_shards(kept, monkeypatch):
    load_into_gathered(monkeypatch)
    assert kept() == [("Sequential", "0.weight", 2, "unreached")]


def test_shards_that_are_what_they_were_once_more(kept, monkeypatch):
    """A baseline was loaded into them to be evaluated, and what they had been is copied back."""
    model = net()
    own = {id(one): one.detach().clone() for one in model.parameters()}
    monkeypatch.setattr(cut_from, "of", lambda one: cut_from.Cut(b"", b"", (0, 1)) if id(one) in own else None)
    model.load_state_dict(net().state_dict())
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(own[id(one)])
    begin_step()
    assert kept() == []


def test_shards_that_were_written_to(kept, monkeypatch):
    load_into_gathered(monkeypatch, cut=False)
    assert kept() == []


def test_shards_that_are_cut_after_the_load(kept, monkeypatch):
    load_into_gathered(monkeypatch, later=True)
    assert kept() == []
