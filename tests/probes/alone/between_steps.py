"""What happens to parameters and gradients between one step and the next: written to, counted."""

from __future__ import annotations

import torch

from ddpcheck import evidence as ev


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
