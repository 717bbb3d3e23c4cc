"""What happens to parameters and gradients between one step and the next: written to, counted."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from ddpcheck import evidence as ev
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import lone_rank


@pytest.fixture
def group(tmp_path):
    """This process alone, as a group of one rank that has others to be compared with."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    lone_rank.joined(2)
    yield
    dist.destroy_process_group()


def training(steps, after_step=None):
    net = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(steps):
        optimizer.zero_grad()
        net(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
        if after_step is not None:
            after_step(net, number)
    return net


def test_what_is_written_between_two_steps(recorded):
    def average(net, number):
        if number == 1:
            net.weight.data.mul_(0.5)

    training(4, after_step=average)
    assert [(one.number, one.moved) for one in recorded(ev.MovedBetween)] == [(1, []), (2, [0]), (3, [])]


class Counting(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "step": 3, "every": 2, "decoupled": True})

    def step(self, closure=None):
        self.param_groups[0]["step"] += 1


def test_counts_in_groups(recorded):
    net = torch.nn.Linear(4, 3)
    optimizer = Counting(net.parameters())
    for _ in range(3):
        optimizer.step()
    assert [(one.number, one.grown) for one in recorded(ev.GroupCounts)] == [(1, {"0 step": 1}), (2, {"0 step": 2})]


def test_torchs_own_count_nothing_there(recorded):
    training(4)
    assert recorded(ev.GroupCounts) == []


def bucket_of(net, order, factor=1.0):
    return torch.cat([net[at].weight.grad.flatten() * factor for at in order])


@pytest.mark.parametrize(("order", "names"), [
    ((0, 1, 2), ["0.weight", "1.weight", "2.weight"]),
    ((2, 0), ["2.weight", "0.weight"]),
    ((1,), None),
])  # fmt: skip
def test_a_bucket(recorded, group, order, names):
    """It is known by its elements what the program has laid side by side."""
    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4, bias=False) for _ in range(3)])
    net(torch.randn(5, 4)).square().mean().backward()
    dist.all_reduce(bucket_of(net, order))
    found = recorded(ev.BucketOrder)
    assert [one.paths for one in found] == ([names] if names else [])


def test_buckets_of_anything_else(recorded, group):
    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4, bias=False) for _ in range(3)])
    net(torch.randn(5, 4)).square().mean().backward()
    dist.all_reduce(torch.cat([bucket_of(net, (0, 1)), torch.ones(3)]))
    dist.all_reduce(bucket_of(net, (0, 1), 3.0))
    net[1].weight.grad.copy_(net[0].weight.grad)
    dist.all_reduce(bucket_of(net, (0, 1)))
    net.zero_grad()
    dist.all_reduce(torch.zeros(32))
    assert recorded(ev.BucketOrder) == []


def test_gradients_of_other_threads_are_not_looked_at(recorded, group, monkeypatch):
    """Autograd may be writing them."""
    monkeypatch.setattr(gradient_events, "_calling", {1, 2})
    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4, bias=False) for _ in range(3)])
    net(torch.randn(5, 4)).square().mean().backward()
    dist.all_reduce(bucket_of(net, (0, 1, 2)))
    assert recorded(ev.BucketOrder) == []
