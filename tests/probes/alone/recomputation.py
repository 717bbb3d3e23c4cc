"""What checkpointed functions draw and write when they run again for backward()."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ddpcheck import evidence as ev
from ddpcheck.probes.ddp import recomputation

pytestmark = pytest.mark.filterwarnings("ignore:.*autocast:FutureWarning")  # torch 2.4's own, in a second run


@pytest.fixture
def recorded(recorded: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[ev.Recomputed]]:
    """The second runs that are recorded from now on."""
    monkeypatch.setattr(recomputation, "_runs", 0)
    monkeypatch.setattr(recomputation, "_lines", Counter())
    monkeypatch.setattr(recomputation._Owners, "written", set())
    return lambda: recorded(ev.Recomputed)


class Block(nn.Module):
    """Counts, keeps a constant, and normalises; all of it runs twice."""

    def __init__(self, p: float = 0.0, **how: Any) -> None:
        super().__init__()
        self.inner, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(p)
        self.how = {"use_reentrant": False, **how}
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("scratch", torch.zeros(1))

    def part(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += len(x)
        self.scratch.fill_(3)
        return self.drop(self.norm(self.inner(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.part, x, **self.how)


def train(model: nn.Module, steps: int = 3) -> None:
    for _ in range(steps):
        model(torch.randn(5, 4, requires_grad=True)).square().sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("preserve", [False, True])
def test_random_states(recorded, reentrant, preserve):
    """Torch puts the state of the first run back, and then that of the backward, unless it is told not to."""
    train(Block(0.5, use_reentrant=reentrant, preserve_rng_state=preserve))
    apart = [] if preserve else ["torch"]
    drew = ["torch"] if reentrant or not preserve else []
    assert [(one.drew, one.apart) for one in recorded()] == [(drew, apart)] * 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_state_that_is_set_within(recorded, reentrant):
    """It may be the same each time."""

    class Seeded(Block):
        def part(self, x: torch.Tensor) -> torch.Tensor:
            torch.manual_seed(5)
            return super().part(x)

    train(Seeded(0.5, use_reentrant=reentrant, preserve_rng_state=False))
    assert [(one.drew, one.apart) for one in recorded()] == [([], [])] * 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_hooks_that_draw(recorded, reentrant):
    """What the backward draws is none of the second forward."""
    model = Block(use_reentrant=reentrant)
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient + torch.randn_like(gradient))
    train(model)
    assert [(one.drew, one.apart) for one in recorded()] == [([], [])] * 3


def test_nothing_is_drawn(recorded):
    """States that differ do not matter then."""
    train(Block(preserve_rng_state=False))
    assert [(one.drew, one.apart) for one in recorded()] == [([], [])] * 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_buffers_that_are_changed_twice(recorded, reentrant):
    """From the second time on, their values are looked at: what is written once more the same is no change."""
    model = Block(use_reentrant=reentrant)
    train(model)
    assert [one.buffers for one in recorded()] == [[], ["seen"], ["seen"]]
    assert int(model.seen) == 2 * 3 * 5


@pytest.mark.parametrize("reentrant", [False, True])
def test_buffers_that_say_what_was_last(recorded, reentrant):
    """Two forwards before their backward: the second run puts what is of one batch in the place of the other's."""

    class Last(Block):
        def part(self, x: torch.Tensor) -> torch.Tensor:
            self.scratch.copy_(x.detach().mean())
            return self.drop(self.norm(self.inner(x)))

    model = Last(use_reentrant=reentrant)
    for _ in range(4):
        sum(model(torch.randn(5, 4, requires_grad=True)).square().sum() for _ in range(2)).backward()
    assert [one.buffers for one in recorded()] == [[]] * 8


def test_an_error_of_the_program_is_its_own(recorded):
    """It comes out of the second run as it would without us."""
    runs = []

    class Failing(Block):
        def part(self, x: torch.Tensor) -> torch.Tensor:
            runs.append(1)
            if len(runs) > 1:
                raise KeyError("mine")
            return super().part(x)

    with pytest.raises(KeyError, match="mine"):
        train(Failing())
    assert len(recorded()) == 1


def test_without_gradients_nothing_runs_again(recorded):
    """An evaluation has its first run alone."""
    with torch.no_grad():
        Block()(torch.randn(5, 4))
    assert recorded() == []
