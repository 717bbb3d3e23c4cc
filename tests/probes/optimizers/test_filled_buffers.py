"""Buffers that are filled with parameters or gradients, as they go into a collective."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.optimizers import filled_buffers
from ddpcheck.probes.optimizers.filled_buffers import _pieces

SHAPES = {(3, 4), (6,)}


@pytest.mark.parametrize(("value", "expected"), [
    ([torch.zeros(3, 4)], [(3, 4)]),
    ([torch.zeros(5, 3, 4)], [(3, 4)] * 5),
    ([torch.zeros(6), torch.zeros(3, 4), torch.zeros(2)], [(6,), (3, 4)]),
    ([torch.zeros(4, 3)], []),
    ([torch.zeros(())], []),
    ([torch.zeros(3, 4, dtype=torch.int64)], []),
    ([torch.zeros(3, 4, device="meta")], []),
    ([], []),
])  # fmt: skip
def test_pieces_of_the_shapes_of_parameters(value, expected):
    """A tensor itself, those stacked in it, those beside it; nothing else is looked at."""
    assert [tuple(one.shape) for one in _pieces(value, SHAPES)] == expected
    assert not any(one.requires_grad for one in _pieces(value, SHAPES))


def test_a_step_that_has_failed_is_over(monkeypatch):
    """Torch calls no hook then: what goes over the wire afterwards is none of it."""
    looked = []
    monkeypatch.setattr(filled_buffers, "_pieces", lambda value, shapes: looked.append(value) or [])
    monkeypatch.setattr(filled_buffers.recorder, "current", lambda: object())
    monkeypatch.setattr(filled_buffers._Now, "step", None)
    given = Exchange("all_gather", {"input_tensors": [torch.zeros(6)]})
    filled_buffers._entered(None, 0, 0, [torch.zeros(6)], 0)
    filled_buffers._gives(given, None)
    assert looked == []
    monkeypatch.setattr(filled_buffers.steps, "is_within_step", lambda frame: True)
    filled_buffers._gives(given, None)
    assert len(looked) == 1
