"""What is recorded of a step, whatever an optimizer of the user's own keeps."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.optimizers import steps
from ddpcheck.probes.recording import patching, recorder


class Keeping(torch.optim.Optimizer):
    """Keeps what it is given as the state of each parameter."""

    def __init__(self, parameters: Any, kept: Any, **given: Any) -> None:
        super().__init__(parameters, given)
        self.kept = kept

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            self.state.update(dict.fromkeys(group["params"], self.kept))


class Unreadable(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("nobody reads this")


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Any]:
    """What was recorded of a step of an optimizer."""
    recorder.begin(tmp_path, 1 << 20)

    def records(optimizer: torch.optim.Optimizer) -> list[Any]:
        optimizer.register_step_pre_hook(patching.shielded(steps._before))
        optimizer.register_step_post_hook(patching.shielded(steps._after))
        optimizer.step()
        folder = Folder(tmp_path)
        folder.read()
        return [record for process in folder.processes.values() for record in process.records]

    yield records
    recorder.stop()


@pytest.mark.parametrize("kept", [torch.ones(3), torch.ones(1), 5, None, {"m": torch.ones(3)}], ids=repr)
@pytest.mark.parametrize(("rate", "written"), [(None, 0.0), (0.5, 0.5), ("auto", ev.UNREAD), (torch.tensor(2.0), 2.0)])
def test_a_step_is_recorded(recorded: Any, kept: Any, rate: Any, written: float) -> None:
    """No learning rate, and state that is no mapping, are nobody's fault."""
    records = recorded(Keeping([torch.nn.Parameter(torch.ones(3))], kept, lr=rate))
    (step,) = [one for one in records if isinstance(one, ev.Step)]
    assert step.rates == [written]
    assert list(step.state) == (["m"] if isinstance(kept, dict) else [])
    assert not [one for one in records if isinstance(one, ev.Defect)]


def test_state_that_cannot_be_read_does_not_cost_the_step(recorded: Any) -> None:
    """The failure is written down beside it."""
    records = recorded(Keeping([torch.nn.Parameter(torch.ones(3))], Unreadable(), lr=0.1))
    assert [type(one) for one in records if isinstance(one, (ev.Defect, ev.Step))] == [ev.Defect, ev.Step]


class Plain(torch.optim.SGD):
    """Fails for as long as it is told to; and steps as its parent does, whose step has hooks of its own."""

    fails = False

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if self.fails:
            raise RuntimeError("out of memory")
        super().step(closure)


def test_a_step_that_fails_leaves_nothing_alive(recorded: Any) -> None:
    """What the failed attempt held is free for the next one, and that one is recorded."""
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)  # from here on the parent's step calls hooks as well
    gone = []

    def attempt(fails: bool) -> list[Any]:
        weight, batch = torch.nn.Parameter(torch.ones(3)), torch.ones(3)
        gone.extend([weakref.ref(weight), weakref.ref(batch)])
        optimizer = Plain([weight], lr=0.1)
        optimizer.fails = fails
        (weight * batch).sum().backward()
        return recorded(optimizer)

    with pytest.raises(RuntimeError, match="out of memory"):
        attempt(True)
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    assert [one.number for one in attempt(False) if isinstance(one, ev.Step)] == [0]


def test_parameters_that_an_optimizer_lets_go_of(recorded: Any) -> None:
    """Nothing holds them any more; and others that are put in their place are seen to be others."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.5)
    weight.grad = torch.ones(3)
    recorded(optimizer)
    gone = weakref.ref(weight)
    optimizer.param_groups[0]["params"].clear()
    optimizer.state.clear()
    del weight
    gc.collect()
    assert gone() is None
    optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.ones(4)))
    optimizer.step()
    records = recorded(optimizer)
    assert [one.parameters[0].kind for one in records if isinstance(one, ev.Optimizer)] == ["float32[3]", "float32[4]"]


def test_an_optimizer_that_steps_another(recorded: Any) -> None:
    """The step is the outer one's alone."""

    class Ahead(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.inner.step(closure)

    inner = Keeping([torch.nn.Parameter(torch.ones(3))], None)
    inner.register_step_pre_hook(patching.shielded(steps._before))
    inner.register_step_post_hook(patching.shielded(steps._after))
    records = recorded(Ahead(inner))
    assert len([one for one in records if isinstance(one, ev.Step)]) == 1
    assert [one.kind for one in records if isinstance(one, ev.Optimizer)] == ["Ahead"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_step_for_the_sake_of_a_state_dict(recorded: Any, elsewhere: bool) -> None:
    """It is none of the training's; what another thread steps at that moment is."""

    def pretend() -> None:
        with steps.not_of_the_training():
            begun.set()
            over.wait(10) if elsewhere else found.extend(recorded(optimizer))

    begun, over = threading.Event(), threading.Event()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1)
    found: list[Any] = []
    other = threading.Thread(target=pretend)
    other.start()
    begun.wait(10)
    if elsewhere:
        found = recorded(optimizer)
    over.set()
    other.join()
    assert sum(isinstance(one, ev.Step) for one in found) == elsewhere
