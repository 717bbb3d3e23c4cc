"""Parameters that several modules share: kept in mind by name, from their registration on."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.probes.ddp import parameter_names
from ddpcheck.probes.layouts import ties


@pytest.fixture(autouse=True)
def noted(monkeypatch):
    """What is registered is noted, by the same hooks as in a program, and is forgotten afterwards."""
    monkeypatch.setattr(ties, "_ties", [])
    handles = [
        torch.nn.modules.module.register_module_parameter_registration_hook(hook)
        for hook in (ties._note, parameter_names._note)
    ]
    yield
    for handle in handles:
        handle.remove()


def model():
    net = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 10, bias=False))
    net[1].weight = net[0].weight
    return net


def same(net):
    return [(tie.first, tie.second, tie.same) for tie in ties.within(net)]


def test_a_tie_holds():
    assert same(model()) == [("0.weight", "1.weight", True)]


def test_a_tie_that_is_lost():
    """A conversion gives each module a tensor of its own."""
    with torch.device("meta"):
        net = model()
    net.to_empty(device="cpu")
    assert same(net) == [("0.weight", "1.weight", False)]


def test_a_tie_that_is_made_again():
    with torch.device("meta"):
        net = model()
    net.to_empty(device="cpu")
    net[1].weight = net[0].weight
    assert same(net) == [("0.weight", "1.weight", True)]


def test_a_tie_that_the_program_ends():
    """It has given one of both another parameter."""
    net = model()
    net[1].weight = torch.nn.Parameter(torch.ones(10, 4))
    assert same(net) == []


def test_a_part_of_a_model_has_one_name():
    """A stage keeps the embedding, another one the head."""
    net = model()
    stage = torch.nn.Sequential(net[0])
    assert same(stage) == [("0.weight", "", True)]


def test_modules_without_ties():
    assert same(torch.nn.Linear(2, 2)) == []
