"""What a training holds, found by walking through whatever the user keeps it in."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from ddpcheck.probes.randomness import random_states
from ddpcheck.probes.training_state import held_values
from ddpcheck.probes.training_state.state_holders import modules


class Parts(NamedTuple):
    model: nn.Module
    optimizer: torch.optim.Optimizer


@dataclass
class Run:
    parts: Parts
    epoch: int = 3
    note: str = "a text"
    history: list[float] = field(default_factory=list)


class Slotted:
    __slots__ = ("count", "model")

    def __init__(self) -> None:
        self.count, self.model = 7, nn.Linear(1, 1)


def trained() -> Parts:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    return Parts(model, optimizer)


def names(training: Any) -> set[str]:
    return {name for name in held_values.values(training) if not name.startswith("random state of ")}


def test_modules_and_optimizers_by_the_names_of_their_parameters():
    """Parameters, buffers, and an optimizer's state under the name of the parameter that it belongs to."""
    found = held_values.values(trained())
    assert found["model.0.weight"].kind == "parameter"
    assert found["model.1.running_mean"].kind == "buffer"
    assert found["optimizer.state of 0.weight.exp_avg"].kind == "optimizer"
    assert found["optimizer.param_groups[0].lr"].shown == "0.1"
    assert {"random state of torch", "random state of random", "random state of numpy"} <= set(found)


def test_wherever_it_is_kept():
    """Objects, dataclasses, named tuples, dicts, lists and slots are looked into; numbers in a row are a history."""
    found = names({"run": Run(trained(), history=[0.1] * 1000), "more": [Slotted()]})
    assert {"run.parts.model.0.weight", "run.epoch", "more.0.count", "more.0.model.bias"} <= found
    assert not any("history" in name for name in found)


def test_each_thing_once():
    """A module is in the list of modules once, and one within another not by itself; its values have all its names."""
    model = nn.Sequential(nn.Linear(1, 1))
    training = {"a": model, "b": model, "inner": model[0]}
    assert list(modules(training)) == ["a"]
    assert {"a.0.weight", "b.0.weight", "inner.weight"} <= names(training)


def test_samplers_loaders_streams_and_schedules():
    """A sampler's epoch, generators, schedulers and scalers, also those that only a loader holds."""
    data = TensorDataset(torch.zeros(8, 1))
    parts = trained()
    generator = torch.Generator().manual_seed(1)
    training = {
        "loader": DataLoader(data, sampler=DistributedSampler(data, num_replicas=2, rank=0)),
        "shuffled": DataLoader(data, sampler=RandomSampler(data), generator=generator),
        "scheduler": torch.optim.lr_scheduler.StepLR(parts.optimizer, 2),
        "scaler": torch.amp.GradScaler("cpu"),
        "own": random.Random(3),
        "draws": numpy.random.default_rng(2),
    }
    before = held_values.values(training)
    assert before["loader.sampler.epoch"].shown == "0"
    assert before["scaler.scale"].shown == "65536.0"
    assert "scheduler.last_epoch" in before
    training["loader"].sampler.set_epoch(4)
    torch.rand(1, generator=generator)
    training["own"].random()
    training["draws"].random()
    after = held_values.values(training)
    changed = {name for name in before if not before[name].equals(after[name])}
    assert changed == {"loader.sampler.epoch", "shuffled.generator", "own", "draws"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_one_bit_is_another_value(dtype):
    """A tensor is compared to the bit, whatever its kind."""
    one = torch.zeros(3).to(dtype)
    other = one.clone()
    assert held_values.tensor("tensor", one).equals(held_values.tensor("tensor", other))
    other[1] = 1
    assert not held_values.tensor("tensor", one).equals(held_values.tensor("tensor", other))
    assert not held_values.tensor("tensor", one).equals(held_values.tensor("tensor", one.reshape(3, 1)))


def test_zeros_of_either_sign_are_apart():
    """-0.0 and 0.0 are equal numbers and other bits."""
    assert not held_values.tensor("tensor", torch.tensor([0.0])).equals(
        held_values.tensor("tensor", torch.tensor([-0.0]))
    )


def test_nothing_is_drawn_by_looking():
    """Looking at a training moves none of its random streams."""
    before = random_states.digests()
    held_values.values({"loader": DataLoader(TensorDataset(torch.zeros(4, 1)), shuffle=True)})
    assert random_states.digests() == before


def test_random_states_are_put_back():
    """Within the block the streams are others; afterwards they are as before."""
    before = random_states.digests()
    with random_states.put_back():
        random_states.scramble(11)
        inside = random_states.digests()
        torch.rand(3)
        random.random()
        numpy.random.rand()
    assert random_states.digests() == before
    assert all(inside[name] != before[name] for name in ("torch", "random", "numpy"))
    with random_states.put_back():
        random_states.scramble(11)
        assert random_states.digests() == inside


class WithStateDict:
    """A trainer in the way of many libraries' users."""

    def __init__(self) -> None:
        self.model, self.steps = nn.Linear(1, 1), 2

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "steps": self.steps}


class Warmup(torch.optim.lr_scheduler.LambdaLR):
    """A scheduler of the user's own."""


def test_state_dicts_of_the_users_own_classes():
    """A trainer's parts are looked at one by one, whatever its state_dict() has; a scheduler is what its own says."""
    optimizer = trained().optimizer
    found = held_values.values({"trainer": WithStateDict(), "schedule": Warmup(optimizer, lambda step: 1.0)})
    assert found["trainer.model.weight"].kind == "parameter"
    assert found["trainer.steps"].kind == "counter"
    assert found["schedule.last_epoch"].kind == "state"


def test_optimizer_over_modules_with_equal_names():
    """State of parameters that have one name in two modules is told apart."""
    models = {"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)}
    optimizer = torch.optim.Adam([p for m in models.values() for p in m.parameters()])
    for model in models.values():
        model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    found = held_values.values({**models, "optimizer": optimizer})
    assert {"optimizer.state of a.weight.exp_avg", "optimizer.state of b.weight.exp_avg"} <= set(found)


class Extra(nn.Module):
    """Counts in Python, and keeps more than tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 3

    def get_extra_state(self) -> Any:
        return {"phase": "late"}


def test_what_modules_keep_beside_tensors():
    """Numbers and texts in a module, and its extra state; arrays of numpy beside it."""
    found = held_values.values({"model": Extra(), "array": numpy.arange(3), "one": numpy.int64(4), "phase": "warm"})
    assert found["model.turns"].shown == "3"
    assert found["model.extra state.phase"].shown == "'late'"
    assert found["phase"].kind == found["array"].kind == found["one"].kind == "counter"


def test_names_are_the_same_within_wrappers():
    """torch.compile's wrapper, at any depth, is no part of a name."""
    inner = nn.Sequential(nn.Linear(1, 1))
    outer = nn.Module()
    outer.net = torch.compile(inner, backend="eager")
    assert "outer.net.0.weight" in names({"outer": outer})
