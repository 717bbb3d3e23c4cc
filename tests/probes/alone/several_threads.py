"""Models that are trained by several threads at once: none of what one of them computes is read from another."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from ddpcheck import evidence as ev
from ddpcheck.probes.optimizers import gradient_events


@pytest.fixture(autouse=True)
def _from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_calling", "_forwards"):
        monkeypatch.setattr(gradient_events, name, set())
    monkeypatch.setattr(gradient_events, "_stepping", {})


def train(steps: int = 3) -> torch.optim.Optimizer:
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(3, 4)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
    return optimizer


def in_a_thread(made: list[Any]) -> None:
    thread = threading.Thread(target=lambda: made.append(train()))
    thread.start()
    thread.join()


def here() -> list[int]:
    return [number for number, _ in gradient_events.trained_here(lambda _: True)]


def test_each_looks_at_what_it_trains(recorded: Any):
    """As long as one alone trains, at all that there is; also at what has made no step yet."""
    made = [train(), torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)]
    mine, idle = map(gradient_events.number_of, made)
    assert {mine, idle} <= {*here()}
    in_a_thread(made)
    assert mine in here()
    assert not {idle, gradient_events.number_of(made[2])} & {*here()}
    assert idle in [number for number, _ in gradient_events.optimizers(lambda _: True)]


def test_what_is_counted_for_all_belongs_to_none(recorded: Any):
    """Weights of losses, and what a backward() has contributed."""
    made = [train(1)]
    assert recorded(ev.LossWeights)
    in_a_thread(made)
    before = len(recorded(ev.LossWeights)), len(recorded(ev.Contributions))
    train()
    assert (len(recorded(ev.LossWeights)), len(recorded(ev.Contributions))) == before
