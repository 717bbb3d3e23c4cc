"""The random states that forwards of models in no wrapper draw from."""

from __future__ import annotations

import pytest
import torch

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.ddp import module_calls
from ddpcheck.probes.layouts import models
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.randomness import random_draws, seed_lines
from ddpcheck.probes.recording import recorder


@pytest.fixture
def streams(tmp_path, monkeypatch):
    """What was put down, with modules watched."""
    monkeypatch.setattr(torch.nn.Module, "__call__", torch.nn.Module.__call__)
    monkeypatch.setattr(random_draws, "_forwards", {})
    monkeypatch.setattr(seed_lines, "times", 0)  # what was seeded before adds looks
    monkeypatch.setattr(models, "_met", set())
    monkeypatch.setattr(models, "_roots", {})
    module_calls.watch()
    recorder.begin(tmp_path, 1 << 22)

    def put_down():
        folder = Folder(tmp_path)
        folder.read()
        (process,) = folder.processes.values()
        return process.of(ev.Stream)

    yield put_down
    recorder.stop()


def net():
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))


def test_a_model_that_drops_out(streams):
    """Each forward with gradients, by the model's number; the outermost module alone counts."""
    one = net()
    for _ in range(2):
        one(torch.ones(1, 2))
    with torch.no_grad():
        one(torch.ones(1, 2))
    one.eval()(torch.ones(1, 2))
    first, second = streams()
    assert (first.where, first.wrapper, first.number, second.number) == ("forward", None, 0, 1)
    assert first.model == second.model is not None
    assert first.state != second.state


def test_what_is_no_model(streams, monkeypatch):
    """A dropout by itself has no parameters; what is recomputed in a backward() has drawn before."""
    torch.nn.Dropout(0.5)(torch.ones(2))
    monkeypatch.setattr(gradient_events.Running, "depth", 1)
    net()(torch.ones(1, 2))
    assert streams() == []
