"""What becomes of gradients between the backward() calls of one step, and what a loss was divided by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ddpcheck import evidence as ev


@pytest.fixture
def recorded(recorded: Any) -> Callable[[], list[ev.Window]]:
    """The windows that are recorded from now on."""
    return lambda: recorded(ev.Window)


def nothing(net: Any, micro: int) -> None:
    """What a right program does between."""


def train(between: Callable[[Any, int], None], micro: int = 3, steps: int = 2) -> None:
    """Accumulate over micro-batches; ``between`` is called after each backward()."""
    torch.manual_seed(0)
    net = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        for number in range(micro):
            (net(torch.randn(4, 6)).square().mean()).backward()
            between(net, number)
        optimizer.step()
        optimizer.zero_grad()


def became(windows: list[ev.Window]) -> list[list[str]]:
    return [[one.became for one in window.between] for window in windows]


def test_gradients_that_are_added_to(recorded):
    """Nothing happens between, and the calls are counted."""
    train(nothing)
    first, second = recorded()
    assert became([first, second]) == [["kept", "kept"]] * 2
    assert second.backwards == 3


def scaled(net: Any, micro: int) -> None:
    for p in net.parameters():
        p.grad *= 0.5


def gone(net: Any, micro: int) -> None:
    for p in net.parameters():
        p.grad = None


def moved(net: Any, micro: int) -> None:
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
    net.zero_grad()


def averaged(net: Any, micro: int) -> None:
    for p in net.parameters():
        p.grad += torch.randn_like(p)


def one_of_two(net: Any, micro: int) -> None:
    net.bias.grad = None


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        (scaled, "rescaled"),
        (gone, "lost"),
        (lambda net, _: net.zero_grad(), "zeroed"),
        (lambda net, _: net.zero_grad(set_to_none=False), "zeroed"),
        (moved, "other"),
        (averaged, "other"),
        (one_of_two, "other"),
    ],
)
def test_what_became_of_gradients(recorded, between, expected):
    """In the middle of a window; a program that moves its parameters has stepped."""
    train(lambda net, micro: between(net, micro) if micro < 2 else None)
    assert became(recorded()) == [[expected, expected]] * 2


def test_what_is_divided_when_it_is_done(recorded):
    """Two stages on one rank: the gradients of each are divided after its last micro-batch, in whatever order."""
    torch.manual_seed(0)
    stages = [torch.nn.Linear(6, 3) for _ in range(2)]
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.parameters()], lr=0.1)
    for _ in range(2):
        for stage in stages:
            for _ in range(2):
                stage(torch.randn(4, 6)).square().mean().backward()
            scaled(stage, 0)
        optimizer.step()
        optimizer.zero_grad()
    assert became(recorded()) == [["kept", "other", "kept"]] * 2


@pytest.mark.parametrize(
    ("zeroed", "expected"),
    [(False, [False, True, True]), (True, [False] * 3)],
)
def test_gradients_that_nobody_zeroes(recorded, zeroed, expected):
    """The next window adds to them."""
    torch.manual_seed(0)
    net = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        net(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
        if zeroed:
            optimizer.zero_grad()
    found = recorded()
    assert [one.leftover for one in found] == expected


def test_the_factor_and_the_line_of_a_clip(recorded):
    """By torch's function."""
    train(lambda net, _: torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3))
    one = recorded()[0].between[0]
    assert one.became == "rescaled"
    assert 0 < one.factor < 1
    assert one.clip != ev.NO_SITE


def test_evidence_of_long_runs_is_small(recorded):
    """Windows are written down ever fewer times."""
    train(nothing, micro=2, steps=600)
    assert len(recorded()) < 20
