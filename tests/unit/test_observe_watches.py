"""What a rank keeps on record while the test trains: steps, passes through samplers, and arming forwards."""

from __future__ import annotations

import copy
import gc
import json
import subprocess
import sys

import pytest
import torch
from torch.optim import optimizer
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.probes.data import sampler_order
from ddpcheck.probes.optimizers import stepped_parameters

# --- steps


@pytest.fixture
def steps(monkeypatch):
    """Steps are recorded during a test, and nothing of it stays."""
    handles = []
    register = optimizer.register_optimizer_step_post_hook
    monkeypatch.setattr(optimizer, "register_optimizer_step_post_hook", lambda hook: handles.append(register(hook)))
    monkeypatch.setattr(stepped_parameters, "_watching", False)
    monkeypatch.setattr(stepped_parameters, "_ids", set())
    yield handles
    for handle in handles:
        handle.remove()


def trained(model, optimizer=None):
    """Give every parameter a gradient, and step."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return model


def test_a_model_is_stepped_by_its_optimizer(steps):
    """Only a model whose parameters an optimizer has stepped has been stepped."""
    stepped_parameters.watch()
    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    assert not stepped_parameters.has_stepped(model.parameters())
    trained(model)
    assert stepped_parameters.has_stepped(model.parameters())
    assert not stepped_parameters.has_stepped(other.parameters())


def test_one_stepped_parameter_is_enough(steps):
    """A model of which an optimizer has some parameters only has been stepped, too."""
    stepped_parameters.watch()
    model = torch.nn.Linear(2, 1)
    trained(model, torch.optim.SGD([model.bias], lr=0.1))
    assert stepped_parameters.has_stepped(model.parameters())
    assert not stepped_parameters.has_stepped([model.weight])


def test_an_optimizer_that_was_there_before_is_watched(steps):
    """An optimizer made before the watch began is recorded all the same."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    stepped_parameters.watch()
    trained(model, optimizer)
    assert stepped_parameters.has_stepped(model.parameters())


def test_a_step_before_the_watch_is_unknown(steps):
    """What happened before the watch is not on record."""
    model = trained(torch.nn.Linear(2, 1))
    stepped_parameters.watch()
    assert not stepped_parameters.has_stepped(model.parameters())


def test_watching_twice_is_watching_once(steps):
    """A second watch adds no hook."""
    stepped_parameters.watch()
    stepped_parameters.watch()
    assert len(steps) == 1


def test_a_copy_has_not_been_stepped(steps):
    """Steps are of parameters, not of values or names."""
    stepped_parameters.watch()
    model = trained(torch.nn.Linear(2, 1))
    assert not stepped_parameters.has_stepped(copy.deepcopy(model).parameters())


def test_parameters_that_are_gone_are_forgotten(steps):
    """A new parameter in the memory of an old one is not taken for it."""
    stepped_parameters.watch()
    trained(torch.nn.Linear(2, 1))
    gc.collect()
    assert stepped_parameters._ids == set()


# --- passes


@pytest.fixture
def passes(monkeypatch):
    """Passes are recorded during a test, and the sampler's class is as before after it."""
    monkeypatch.setattr(DistributedSampler, "__iter__", DistributedSampler.__iter__)
    monkeypatch.setattr(sampler_order, "_watching", False)
    sampler_order.watch()


def sampler(size=10, rank=0, **more):
    return DistributedSampler(range(size), 2, rank, **more)


def recorded(sampler):
    return [(one.epoch, one.length) for one in sampler_order.epochs(sampler).passes]


@pytest.mark.usefixtures("passes")
def test_every_pass_is_recorded_with_its_epoch():
    """Each time through a sampler is one pass, with the epoch of the time."""
    one = sampler(11)
    list(one)
    one.set_epoch(3)
    list(one)
    facts = sampler_order.epochs(one)
    assert (facts.kind, facts.shuffle) == ("DistributedSampler", True)
    assert recorded(one) == [(0, 6), (3, 6)]


@pytest.mark.usefixtures("passes")
def test_orders_are_equal_exactly_where_they_are():
    """Two passes have the same order if the same indices came in the same sequence."""
    one = sampler()
    drawn = []
    for epoch in (0, 1, 0):
        one.set_epoch(epoch)
        drawn.append(list(one))
    a, b, c = (found.order for found in sampler_order.epochs(one).passes)
    assert drawn[0] == drawn[2] != drawn[1]
    assert a == c != b


@pytest.mark.usefixtures("passes")
def test_recording_changes_no_order(monkeypatch):
    """A watched sampler gives what it would have given."""
    one = sampler(seed=4)
    watched = list(one)
    monkeypatch.undo()
    assert list(one) == watched


@pytest.mark.usefixtures("passes")
def test_a_pass_that_is_left_early_is_a_pass():
    """An epoch counts from its beginning: the order was drawn."""
    one = sampler()
    next(iter(one))
    assert recorded(one) == [(0, 5)]


@pytest.mark.usefixtures("passes")
def test_a_loader_passes_through_its_sampler():
    """An epoch of a DataLoader is a pass of its sampler."""
    dataset = TensorDataset(torch.arange(10))
    loader = DataLoader(dataset, 2, sampler=DistributedSampler(dataset, 2, 0))
    for _ in range(2):
        list(loader)
    assert recorded(loader.sampler) == [(0, 5), (0, 5)]


@pytest.mark.usefixtures("passes")
def test_samplers_are_recorded_each_by_itself():
    """One sampler's passes are not another's."""
    one, other = sampler(), sampler()
    list(one)
    assert (len(recorded(one)), recorded(other)) == (1, [])


@pytest.mark.usefixtures("passes")
def test_what_is_not_recorded_leaves_no_trace():
    """Looks within not_recording, also nested and after an error, are no passes; later ones are."""

    def fail(one):
        with sampler_order.not_recording():
            list(one)
            raise ZeroDivisionError

    one = sampler()
    with sampler_order.not_recording():
        with sampler_order.not_recording():
            list(one)
        list(one)
    with pytest.raises(ZeroDivisionError):
        fail(one)
    assert recorded(one) == []
    list(one)
    assert len(recorded(one)) == 1


@pytest.mark.usefixtures("passes")
def test_watching_again_records_no_pass_twice():
    """A second watch changes nothing."""
    sampler_order.watch()
    one = sampler()
    list(one)
    assert len(recorded(one)) == 1


class Backwards(DistributedSampler):
    """Turns torch's order round."""

    def __iter__(self):
        return reversed(list(super().__iter__()))


class Steady(DistributedSampler):
    """Has an order of its own, and neither an epoch nor a hash."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __eq__(self, other):
        return self is other

    __hash__ = None

    def __len__(self):
        return len(self.dataset)

    def __iter__(self):
        return iter(range(len(self.dataset)))


@pytest.mark.usefixtures("passes")
def test_a_derived_sampler_that_asks_torchs_is_followed():
    """What it makes of the order is its own; that the order changes with the epoch is torch's."""
    one = Backwards(range(10), 2, 0, seed=3)
    assert list(one) == list(sampler(seed=3))[::-1]
    one.set_epoch(1)
    list(one)
    assert recorded(one) == [(0, 5), (1, 5)]


@pytest.mark.usefixtures("passes")
def test_a_sampler_with_an_order_of_its_own_is_left_alone():
    """What it returns is what its user gets, and that it is not followed is told."""
    one = Steady(range(10))
    assert type(iter(one)) is type(iter(range(10)))
    assert list(one) == list(range(10))
    facts = sampler_order.epochs(one)
    assert (facts.passes, facts.followed) == ([], False)
    assert sampler_order.epochs(sampler()).followed


@pytest.mark.usefixtures("passes")
def test_a_sampler_without_a_hash_is_followed():
    """An equality of its own takes a class's hash away; its passes are recorded all the same, and forgotten with it."""

    class Equal(DistributedSampler):
        def __eq__(self, other):
            return True

        __hash__ = None

    one, other = Equal(range(10), 2, 0), Equal(range(10), 2, 0)
    list(one)
    assert (recorded(one), recorded(other)) == ([(0, 5)], [])
    before = len(sampler_order._passes)
    del one
    assert len(sampler_order._passes) == before - 1


def test_another_sampler_has_no_passes():
    """A sampler that is no DistributedSampler has no passes on record, and is told by its name."""
    facts = sampler_order.epochs(SequentialSampler(range(3)))
    assert (facts.kind, facts.shuffle, facts.passes) == ("SequentialSampler", False, [])
    assert not sampler_order.epochs(sampler(shuffle=False)).shuffle


# --- arming forwards

ARMING = """
import json, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.probes.ddp import armed_forwards as arming, model_state as state

dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 1), rank=0, world_size=1)
net = torch.nn.Linear(2, 1)
before = DistributedDataParallel(net)
before(torch.ones(1, 2))
arming.watch()
arming.watch()
model = DistributedDataParallel(net)
found = {"unwrapped": arming.armed_forwards(net), "unwatched": arming.armed_forwards(before)}


def count(name, call):
    start = arming.armed_forwards(model)
    call()
    found[name] = arming.armed_forwards(model) - start


def without_gradients():
    with torch.no_grad():
        model(torch.ones(1, 2))


def without_sync():
    with model.no_sync():
        model(torch.ones(1, 2))
        found["synchronising in no_sync"] = state.facts(model, []).synchronising


count("forward", lambda: model(torch.ones(1, 2)))
count("two forwards", lambda: (model(torch.ones(1, 2)), model(torch.ones(1, 2))))
count("evaluation mode", lambda: model.eval()(torch.ones(1, 2)))
count("module alone", lambda: model.module(torch.ones(1, 2)))
count("no gradients", without_gradients)
count("no_sync", without_sync)
facts = state.facts(model, state.parameters(model))
found["facts"] = [facts.wrapped, facts.armed_forwards, facts.synchronising, facts.tensors["weight"].reduced]
net.late = torch.nn.Parameter(torch.ones(1))
found["late"] = state.facts(model, state.parameters(model)).tensors["late"].reduced
dist.destroy_process_group()
print(json.dumps(found))
"""


def test_only_forwards_that_prepare_the_reducer_are_counted(tmp_path):
    """A forward arms the reducer through the wrapper, with gradients, outside of no_sync(), and once."""
    run = subprocess.run(
        [sys.executable, "-c", ARMING, str(tmp_path / "store")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == {  # gloo prints, too
        "unwrapped": None,
        "unwatched": 0,
        "forward": 1,
        "two forwards": 2,
        "evaluation mode": 1,
        "module alone": 0,
        "no gradients": 0,
        "no_sync": 0,
        "synchronising in no_sync": False,
        "facts": [True, 4, True, True],
        "late": False,
    }
