"""What is noted of models that no optimizer steps, when they are called; and that nothing of it reaches the program."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpcheck import evidence as ev
from ddpcheck.probes.moments import used_models


@pytest.fixture(autouse=True)
def _from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    for name in ("_known", "_new", "_written"):
        monkeypatch.setattr(used_models, name, type(getattr(used_models, name))())
    monkeypatch.setattr(used_models, "_looks", 0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.norm = nn.Linear(4, 4), nn.Linear(4, 2), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.body(x))


class Trained:
    """A net, a copy of it, and steps."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net, self.copy = Net(), Net().eval().requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.net(torch.randn(5, 4)).square().mean().backward()
        self.optimizer.step()

    def use(self) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = self.copy(torch.ones(2, 4))
        return found


def of_copy(recorded: Any) -> list[ev.ModelUsed]:
    return [one for one in recorded(ev.ModelUsed) if not one.trained]


def test_a_call_within_a_transform_leaves_the_next_one_to_be_looked_at(recorded):
    """Nothing within torch.func can be looked at; the step's next call of the copy can."""
    both = Trained()
    for _ in range(3):
        with torch.no_grad():
            torch.func.vmap(both.copy.body)(torch.ones(3, 2, 4))
            torch.func.vmap(both.copy)(torch.ones(1, 2, 4))
        both.use()
        both.step()
    assert len(of_copy(recorded)) >= 2


def test_a_use_after_each_step_with_what_is_trained(recorded):
    both = Trained()
    for _ in range(3):
        both.use()
        both.use()  # after the same step: it is what it was
        both.step()
    found = of_copy(recorded)
    assert [(one.steps - found[0].steps, one.uses) for one in found] == [(0, 1), (1, 2), (2, 3)]
    assert [one.look for one in found] == [1, 2, 3]
    trained = [one for one in recorded(ev.ModelUsed) if one.trained]
    assert [one.look for one in trained] == [2, 3]  # before its first call nobody knows the net
    names = dict(zip(found[0].names, found[0].used, strict=True))
    assert (names["body.weight"], names["head.weight"], names["norm.running_mean"]) == (1, 0, 1)
    assert found[0].buffers == 2
    assert "norm.num_batches_tracked" not in names
    assert found[1].names == []


def test_uses_are_looked_at_in_pairs(recorded):
    both = Trained()
    for _ in range(20):
        both.use()
        both.step()
    assert [one.uses for one in of_copy(recorded)] == [*range(1, 10), 16, 17]


def test_what_is_written_to_is_looked_at(recorded):
    both = Trained()
    for number in range(22):
        both.use()
        both.step()
        if number in (12, 19):
            both.copy.load_state_dict(both.net.state_dict())
    assert [one.uses for one in of_copy(recorded)] == [*range(1, 10), 14, 16, 17, 21]


def test_parts_of_what_is_trained_are_none(recorded):
    both = Trained()
    both.step()
    with torch.no_grad():
        both.net(torch.ones(2, 4))
        both.net.body(torch.ones(2, 4))
    both.net.head.requires_grad_(False)
    assert of_copy(recorded) == []


def test_nothing_is_changed_and_errors_are_the_programs(recorded):
    both = Trained()
    both.step()
    before, state = copy.deepcopy(both.copy.state_dict()), torch.get_rng_state()
    versions = [one._version for one in both.copy.parameters()]
    wanted = both.use()
    assert torch.equal(torch.get_rng_state(), state)
    assert [one._version for one in both.copy.parameters()] == versions
    assert all(torch.equal(one, before[name]) for name, one in both.copy.state_dict().items())
    both.step()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        both.copy(torch.ones(2, 3))
    assert used_models.CALLED is None
    both.step()
    assert torch.equal(both.use(), wanted)


def test_tensors_without_versions_or_memory(recorded):
    both = Trained()
    both.step()
    with torch.inference_mode():
        odd = Net().eval()
        odd(torch.ones(2, 4))
    meta = Net().to("meta").eval()
    meta(torch.ones(2, 4, device="meta"))
    assert [one.names == [] for one in of_copy(recorded) if one.model != of_copy(recorded)[0].model] in ([], [True])
