"""What is put on record of an optimizer that steps what no model has any more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ddpcheck.evidence import Parameter
from ddpcheck.probes.layouts.models import Place
from ddpcheck.probes.optimizers import description
from ddpcheck.probes.recording import recorder


@pytest.mark.parametrize(("has_gradient", "places"), [(False, [[0]]), (True, [])])
def test_what_has_a_gradient_is_not_stepped_in_vain(monkeypatch, has_gradient, places):
    """Masters in full precision and weights that workers copy are stepped on purpose: they are given gradients."""
    own, stepped = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    own.grad = torch.ones(2)
    stepped.grad = torch.ones(2) if has_gradient else None
    known = {id(own): Place(0, "weight", None)}
    monkeypatch.setattr(description.models, "trainable", lambda _: [(known[id(own)], own)])
    writer, records = recorder.InMemory(), []
    monkeypatch.setattr(writer, "write", records.append)
    described = [Parameter(name="p", kind="float32[2]", wrapper=None, reduced=False)]
    description._note_left_out(writer, SimpleNamespace(number=0, steps=0), [stepped], described, known, [])
    assert [one.stale for one in records] == places
