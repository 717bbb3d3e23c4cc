"""Trainable parameters that no optimizer has; and which optimizer a state was loaded into."""

from __future__ import annotations

from typing import Any

import torch

from ddpcheck import evidence as ev


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


def train(net: Any, *optimizers: Any, steps: int = 5) -> None:
    for _ in range(steps):
        net(torch.randn(4, 6)).square().mean().backward()
        for one in optimizers:
            one.step()
        net.zero_grad()


def test_a_layer_that_is_left_out(recorded):
    """At the first steps and some of those that follow, with what it was on entry."""
    net = model()
    train(net, torch.optim.SGD(net[0].parameters(), lr=0.1), steps=20)
    looks = recorded(ev.Unstepped)
    assert [one.number for one in looks] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 16]
    assert all((one.names, one.among) == (["2.weight", "2.bias"], 4) for one in looks)
    assert len({one.values for one in looks}) == 1
    assert len(looks[0].values) == 2 * ev.WIDTH


def test_what_is_stepped_or_not_trained(recorded):
    """By another optimizer; or by nobody, since it is frozen."""
    net = model()
    train(net, torch.optim.SGD(net[0].parameters(), lr=0.1), torch.optim.SGD(net[2].parameters(), lr=0.1))
    frozen = model()
    frozen[2].requires_grad_(False)
    train(frozen, torch.optim.SGD(frozen[0].parameters(), lr=0.1))
    assert recorded(ev.Unstepped) == []


def test_what_is_stepped_by_hand(recorded):
    """Its values change from look to look."""
    net = model()
    optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)
    for _ in range(3):
        net(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for p in net[2].parameters():
                p -= 0.1 * p.grad
        net.zero_grad()
    assert len({one.values for one in recorded(ev.Unstepped)}) == 3


def test_which_optimizer_a_state_went_into(recorded):
    """By its number, which its steps have, too."""
    net = model()
    first, second = (torch.optim.Adam(net.parameters(), lr=0.1) for _ in range(2))
    train(net, second, steps=1)
    second.load_state_dict(second.state_dict())
    first.load_state_dict(second.state_dict())
    into = [one.optimizer for one in recorded(ev.StateLoaded) if one.owner == "optimizer"]
    (stepped,) = {one.optimizer for one in recorded(ev.Step)}
    assert into == [stepped, stepped - 1]
