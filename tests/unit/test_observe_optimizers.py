"""What is recorded of a step, whatever an optimizer of the user's own keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ddpcheck import evidence as ev
from ddpcheck.observe import optimizers, patching, recorder
from ddpcheck.run.folder import Folder


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
        optimizer.register_step_pre_hook(patching.shielded(optimizers._before))
        optimizer.register_step_post_hook(patching.shielded(optimizers._after))
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
