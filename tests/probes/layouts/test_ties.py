"""Parameters that several modules share: kept in mind by name, from their registration on."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

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


def test_a_tie_that_a_load_undoes():
    """With assign=True each name gets a tensor of its own; where these differ, the checkpoint had no tie."""
    with torch.device("meta"):
        nets = model(), model()
    weight = torch.rand(10, 4)
    nets[0].load_state_dict({"0.weight": weight, "1.weight": weight.clone()}, assign=True)
    nets[1].load_state_dict({"0.weight": weight, "1.weight": torch.zeros(10, 4)}, assign=True)
    assert [same(net) for net in nets] == [[("0.weight", "1.weight", False)], []]
    nets[0][1].weight = nets[0][0].weight
    assert same(nets[0]) == [("0.weight", "1.weight", True)]


def test_a_load_of_the_programs_own_that_ties_again():
    class Net(torch.nn.Sequential):
        def load_state_dict(self, state):
            super().load_state_dict(state, assign=True)
            self[1].weight = self[0].weight

    net = Net(*model())
    net.load_state_dict({"0.weight": torch.ones(10, 4), "1.weight": torch.ones(10, 4)})
    net[1].weight = torch.nn.Parameter(torch.ones(10, 4))
    assert same(net) == []


@pytest.fixture
def mesh(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:DTensor random operators")  # on a mesh of CPUs, in torch 2.4
def test_a_tie_that_a_load_undoes_before_it_is_sharded(mesh):
    """Of what lies in parts by now, this rank's are compared."""
    try:
        from torch.distributed.tensor import distribute_tensor
    except ImportError:  # torch 2.4
        from torch.distributed._tensor import distribute_tensor
    with torch.device("meta"):
        nets = model(), model()
    weight = torch.rand(10, 4)
    for net, other in zip(nets, (weight.clone(), torch.zeros(10, 4)), strict=True):
        net.load_state_dict({"0.weight": weight, "1.weight": other}, assign=True)
        for part in net:  # as fully_shard does: torch itself puts it there
            part._parameters["weight"] = torch.nn.Parameter(distribute_tensor(part.weight.detach(), mesh))
    assert [same(net) for net in nets] == [[("0.weight", "1.weight", False)], []]
