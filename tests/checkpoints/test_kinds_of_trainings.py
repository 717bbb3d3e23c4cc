"""The many forms that a training is kept in: its parts are found, and a load that loads nothing is told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.stateful import Stateful

import ddpcheck
from ddpcheck.vocabulary.model import Finding


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))


class AttrDict(dict):
    """A mapping whose keys are attributes, too: it raises KeyError where others raise AttributeError."""

    __getattr__ = dict.__getitem__


class Job(Stateful):
    """A trainer with a base class from torch."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


class Lightning(nn.Module):
    """A trainer that is a module itself, and holds the wrapped one."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.model, self.optimizer = model, optimizer


def closure(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], tuple[Any, Any]]:
    return lambda: (model, optimizer)


FORMS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], tuple[Any, Any]]]] = {
    "tuple": (lambda m, o: (m, o), lambda t: t),
    "dict": (lambda m, o: {"m": m, "o": o}, lambda t: (t["m"], t["o"])),
    "namespace": (lambda m, o: SimpleNamespace(m=m, o=o), lambda t: (t.m, t.o)),
    "attribute dict": (lambda m, o: AttrDict(m=m, o=o), lambda t: (t.m, t.o)),
    "closure": (closure, lambda t: t()),
    "stateful": (Job, lambda t: (t.model, t.optimizer)),
    "module": (Lightning, lambda t: (t.model, t.optimizer)),
    "bare and wrapped": (
        lambda m, o: SimpleNamespace(raw=getattr(m, "module", m), m=m, o=o),
        lambda t: (t.m, t.o),
    ),
}


def functions(form: str) -> dict[str, Callable[..., Any]]:
    """build, step, save and load of a training in this form."""
    put, take = FORMS[form]

    def build(wrap: Any) -> Any:
        model = wrap(net())
        return put(model, torch.optim.AdamW(model.parameters(), lr=0.01))

    def step(training: Any) -> None:
        model, optimizer = take(training)
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()

    def save(training: Any, path: Path) -> None:
        model, optimizer = take(training)
        write({"m": getattr(model, "module", model).state_dict(), "o": optimizer.state_dict()}, path)

    def load(training: Any, path: Path) -> None:
        model, optimizer = take(training)
        state = torch.load(path, map_location="cpu", weights_only=False)
        getattr(model, "module", model).load_state_dict(state["m"])
        optimizer.load_state_dict(state["o"])
        torch.set_rng_state(state["streams"][dist.get_rank()])

    return {"build": build, "step": step, "save": save, "load": load}


def write(state: dict[str, Any], path: Path) -> None:
    """Write it with all ranks' streams, beside and then in place."""
    streams: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(streams, torch.get_rng_state())
    if dist.get_rank() == 0:
        torch.save({**state, "streams": streams}, path.with_suffix(".draft"))
        os.replace(path.with_suffix(".draft"), path)
    dist.barrier()


def violated(**arguments: Any) -> Finding:
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_checkpoint_resumable(**arguments)
    return caught.value.findings[0]


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.few(3)
def test_forms(ddp, form):
    """In each form a correct pair holds, and a load of the streams alone leaves the model untouched."""
    given = functions(form)
    ddpcheck.assert_checkpoint_resumable(**given, kills=0)

    def load(training: Any, path: Path) -> None:
        torch.set_rng_state(torch.load(path, map_location="cpu", weights_only=False)["streams"][dist.get_rank()])

    finding = violated(**{**given, "load": load}, kills=0)
    assert finding.check == "checkpoint-load-complete"
    assert "4 of 4 untouched" in finding.found or "8 of 8 untouched" in finding.found


@pytest.mark.ddp(world_size=2)
def test_a_training_that_is_one_module(ddp):
    """build() may return the wrapped module itself."""

    def save(model: nn.Module, path: Path) -> None:
        write({"m": getattr(model, "module", model).state_dict()}, path)

    def load(model: nn.Module, path: Path) -> None:
        state = torch.load(path, map_location="cpu", weights_only=False)
        getattr(model, "module", model).load_state_dict(state["m"])

    def step(model: nn.Module) -> None:
        for parameter in model.parameters():
            parameter.grad = None
        model(torch.ones(4, 6)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad

    ddpcheck.assert_checkpoint_resumable(save, load, build=lambda wrap: wrap(net()), step=step, kills=0)


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("returned", [None, 3, {}, ["nothing"]])
def test_a_training_in_which_nothing_is_found(ddp, returned):
    """What would be checked in vain is refused, with what was returned and what should be."""

    def build(wrap: Any) -> Any:
        wrap(net())
        return returned

    with pytest.raises(TypeError, match="in which the Sequential that it has wrapped is not found"):
        ddpcheck.assert_checkpoint_resumable(**{**functions("tuple"), "build": build})
    with pytest.raises(TypeError, match="assert_load_complete: no module is found"):
        ddpcheck.assert_load_complete(lambda: None, returned)


@pytest.mark.ddp(world_size=2)
def test_one_of_two_models_is_not_returned(ddp):
    """A second model that was wrapped and is not returned would not be checked: refused as well."""

    def build(wrap: Any) -> Any:
        wrap(nn.Linear(2, 2))
        return {"model": wrap(net())}

    with pytest.raises(TypeError, match="the Linear that it has wrapped is not found"):
        ddpcheck.assert_checkpoint_resumable(**{**functions("tuple"), "build": build})


@pytest.mark.ddp(world_size=2)
def test_what_load_returns_is_no_training(ddp):
    """A load that returns the model, or a number, goes on with the training that it was given."""
    given = functions("dict")

    def load(training: Any, path: Path) -> Any:
        given["load"](training, path)
        return training["m"]

    ddpcheck.assert_checkpoint_resumable(**{**given, "load": load}, kills=0)


# --- state in more files than one


class Counting:
    """A training that counts its steps, and trains by the number."""

    def __init__(self, wrap: Any) -> None:
        self.model = wrap(nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        self.optimizer.zero_grad()
        self.model(torch.full((2, 2), float(self.steps))).sum().backward()
        self.optimizer.step()


def save_apart(training: Counting, path: Path, together: bool) -> None:
    """Weights and the number of steps in one file, or each in a file that is replaced by itself."""
    if dist.get_rank() == 0:
        weights = getattr(training.model, "module", training.model).state_dict()
        state = {"m": weights, "n": training.steps} if together else {"m": weights}
        torch.save(state, path.with_suffix(".draft"))
        os.replace(path.with_suffix(".draft"), path)
        if not together:
            path.with_suffix(".new").write_text(json.dumps({"n": training.steps}))
            os.replace(path.with_suffix(".new"), path.with_suffix(".json"))
    dist.barrier()


def load_apart(training: Counting, path: Path, together: bool) -> None:
    state = torch.load(path, map_location="cpu", weights_only=True)
    getattr(training.model, "module", training.model).load_state_dict(state["m"])
    training.steps = state["n"] if together else json.loads(path.with_suffix(".json").read_text())["n"]


@pytest.mark.ddp(world_size=2)
def test_the_number_of_steps_in_a_file_of_its_own(ddp):
    """A kill between two files leaves weights of one step with the number of another: lost, and told so."""

    def arguments(together: bool) -> dict[str, Any]:
        return {
            "save": lambda t, p: save_apart(t, p, together),
            "load": lambda t, p: load_apart(t, p, together),
            "build": Counting,
            "step": Counting.step,
            "kills": 8,
        }

    ddpcheck.assert_atomic_save(**arguments(together=True))
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_atomic_save(**arguments(together=False))
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-atomic-save"
    assert "neither the old state nor the new one" in finding.found


# --- modules of their own kinds


class OwnStateDict(nn.Module):
    """A module that says itself what its state is."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("nothing", torch.empty(0))
        self.turns = 0

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        return {"weight": self.linear.weight.detach(), "bias": self.linear.bias.detach()}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # type: ignore[override]
        with torch.no_grad():
            self.linear.weight.copy_(state["weight"])
            self.linear.bias.copy_(state["bias"])


@pytest.mark.ddp(world_size=2)
def test_modules_with_a_state_dict_of_their_own(ddp):
    """What a module says of itself is its affair: its parameters are found, and an empty buffer is never left out."""
    module = OwnStateDict()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    ddpcheck.assert_load_complete(lambda: module.load_state_dict(state), module)
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_load_complete(lambda: module.linear.weight.data.copy_(state["weight"]), module)
    assert caught.value.findings[0].subject.endswith("linear.bias")


@pytest.mark.ddp(world_size=2)
def test_parameters_that_are_not_there_yet(ddp):
    """A lazy module has no elements before its first batch: a load gives it some."""
    module = nn.LazyLinear(2)
    state = nn.Linear(3, 2).state_dict()
    ddpcheck.assert_load_complete(lambda: module.load_state_dict(state), module)
