"""What is put on record of parameters that lie behind a gather in one buffer with it."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ddpcheck.probes.layouts import models
from ddpcheck.probes.optimizers import gathered_over
from ddpcheck.probes.recording import recorder


@pytest.fixture
def kept(monkeypatch):
    """The records; a model whose two parameters, of 6 and 3 elements, lie in one buffer; a call."""
    records = []
    writer = recorder.InMemory()
    monkeypatch.setattr(writer, "write", records.append)
    monkeypatch.setattr(recorder, "current", lambda: writer)
    gathered_over._calls.clear()
    gathered_over._reached.clear()
    flat = torch.arange(10.0)
    net = nn.Linear(2, 3)
    for parameter, begin in ((net.weight, 0), (net.bias, 6)):
        parameter.data = flat[begin : begin + parameter.numel()].view_as(parameter)
        parameter.grad = torch.ones_like(parameter)
    each = [(SimpleNamespace(path=name), one) for name, one in net.named_parameters()]
    monkeypatch.setattr(models, "places", lambda _: {})
    monkeypatch.setattr(models, "trainable", lambda _: iter(each))

    def gather(output):
        given = SimpleNamespace(get={"output_tensor": output}.get)
        gathered_over._gathers("all_gather_into_tensor", given, SimpleNamespace(site=3))
        return [(one.names, one.elements, one.tails) for one in records]

    return flat, net, gather


def test_a_rest(kept):
    flat, _, gather = kept
    assert gather(flat[:8]) == [(["bias"], [1], struct.pack("f", 8.0))]


def test_the_whole_buffer(kept):
    flat, _, gather = kept
    assert gather(flat) == []
    assert gather(flat[:9]) == []  # behind it is what pads the buffer


def test_a_buffer_of_its_own(kept):
    _, _, gather = kept
    assert gather(torch.zeros(8)) == []


@pytest.mark.parametrize("gradient", [None, torch.zeros(3)])
def test_what_is_not_trained(kept, gradient):
    flat, net, gather = kept
    net.bias.grad = gradient
    assert gather(flat[:8]) == []


def test_a_bucket_before_others(kept):
    """Both that lie behind it, as a whole or in part."""
    flat, _, gather = kept
    assert [one[:2] for one in gather(flat[:4])] == [(["weight", "bias"], [2, 3])]


def test_a_bucket_of_which_another_gather_takes_the_rest(kept):
    """What is small may come out of that as it went in."""
    flat, _, gather = kept
    gather(flat[:4])
    gather(flat[4:])
    assert len(gather(flat[:4])) == 1
