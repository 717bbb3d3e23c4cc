"""What a rank keeps on record of passes through samplers: the order of each, and with which epoch."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.probes.data import sampler_order


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
