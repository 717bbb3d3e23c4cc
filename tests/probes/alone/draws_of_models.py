"""Random states at the forwards of models that are in no wrapper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes import all_probes
from ddpcheck.probes.recording import recorder


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Callable[[], list[ev.Stream]]]:
    """The states that are recorded from now on."""
    all_probes.patch()
    recorder.begin(tmp_path, 1 << 22)

    def records() -> list[ev.Stream]:
        folder = Folder(tmp_path)
        folder.read()
        return [record for process in folder.processes.values() for record in process.of(ev.Stream)]

    yield records
    recorder.stop()


def test_each_forward_in_training_that_draws(recorded):
    """By model, and with the line that has set the state last; an evaluation and a loss draw nothing."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    torch.manual_seed(3)
    state = torch.get_rng_state()
    for turn in range(3):
        if turn == 2:
            torch.set_rng_state(state)
        nn.MSELoss()(model(torch.ones(2, 4)), torch.zeros(2, 4)).backward()
    model.eval()
    model(torch.ones(2, 4))
    found = recorded()
    assert [(one.where, one.number, one.wrapper) for one in found] == [("forward", turn, None) for turn in range(3)]
    assert len({one.model for one in found}) == 1
    assert found[0].state == found[2].state != found[1].state
    assert found[1].seed == "3"
    assert found[2].seeded != found[1].seeded


def test_an_error_of_the_program(recorded):
    """It is the program's, and the next forward is looked at as ever."""
    model = nn.Sequential(nn.Dropout(), nn.Linear(4, 4))
    with pytest.raises(RuntimeError, match="mat1"):
        model(torch.ones(2, 3))
    model(torch.ones(2, 4))
    assert [one.number for one in recorded()] == [0, 1]
