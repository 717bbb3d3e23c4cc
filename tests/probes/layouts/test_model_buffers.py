"""The buffers of models in no wrapper, after steps."""

from __future__ import annotations

import pytest
import torch

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.layouts import model_buffers, models
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder


class Net(torch.nn.Module):
    """A layer, a count that is saved, and a table that is not."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("table", torch.ones(3), persistent=False)


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """What was put down of a model after so many steps."""
    for name, empty in (("_met", set()), ("_roots", {}), ("_buffers", {}), ("_writer", None)):
        monkeypatch.setattr(models, name, empty)
    recorder.begin(tmp_path, 1 << 22)

    def put_down(net, steps, between=lambda number: None):
        writer = recorder.current()
        models.met(writer, net)
        for number in range(steps):
            between(number)
            model_buffers.note(writer, 0, number, 0)
        later_records.finish()
        folder = Folder(tmp_path)
        folder.read()
        (process,) = folder.processes.values()
        return process.of(ev.BuffersHeld)

    yield put_down
    recorder.stop()


def test_buffers_that_are_saved(noted):
    """Their digests change with them; the names are those of the model."""
    net = Net()
    found = noted(net, 20, lambda number: net.count.add_(number == 1))
    assert [one.number for one in found] == [*range(9), 16]
    assert [one.names for one in found] == [[]] * 10
    assert len(found[0].digests) == ev.WIDTH
    assert len({one.digests for one in found}) == 2


def test_a_buffer_that_came_later(noted):
    net = Net()
    (*_, last) = noted(net, 2, lambda number: net.register_buffer("other", torch.ones(2)))
    assert last.names == ["count", "other"]


def test_a_model_without_buffers(noted):
    assert noted(torch.nn.Linear(2, 2), 2) == []
