"""Sums of gradients: they scale and add up as the gradients do, and a step finds what backward() has left."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from ddpcheck.evidence import GradientSums
from ddpcheck.probes.layouts import gradient_sums, models
from ddpcheck.probes.recording import recorder
from tests import progress


def sums(tensor):
    parameter = nn.Parameter(torch.zeros_like(tensor))
    parameter.grad = tensor
    return gradient_sums._sums_of(parameter)


@pytest.mark.parametrize("shape", [(3,), (40, 7), (200, 300)])
@pytest.mark.parametrize("transposed", [False, True])
def test_they_are_linear(shape, transposed):
    """In how a gradient is laid out, too."""
    one, other = torch.randn(shape), torch.randn(shape)
    if transposed:
        one, other = one.t(), other.t()
    together = sums(0.25 * (one + other))
    assert torch.allclose(together, 0.25 * (sums(one) + sums(other)), rtol=1e-4, atol=1e-5)
    assert len(together) == gradient_sums.NUMBERS
    assert together.abs().min() > 0


def test_what_has_no_plain_memory_has_none():
    assert gradient_sums._sums_of(None) is None
    assert gradient_sums._sums_of(nn.Parameter(torch.zeros(3))) is None
    assert sums(torch.eye(3).to_sparse()) is None


def test_no_random_number_is_drawn():
    before = torch.get_rng_state()
    gradient_sums._factors.clear()
    sums(torch.ones(5))
    assert torch.equal(before, torch.get_rng_state())


def test_a_step_finds_what_backward_has_left():
    """The last backward() before it counts; what the program does to gradients in between is seen."""
    writer = recorder.InMemory()
    before = recorder.leave()
    recorder.use(writer)
    try:
        net = nn.Linear(3, 2)
        models.met(writer, net)
        parameters = list(net.parameters())
        for scale in (1.0, 2.0):
            for one in parameters:
                one.grad = torch.full_like(one, scale)
            gradient_sums.after_backward(writer, 4)
        for one in parameters:
            one.grad /= 4
        gradient_sums.at_step(writer, 3, 0, parameters)
        gradient_sums.at_step(writer, 4, 0, parameters)
        gradient_sums.at_step(writer, 4, 1, parameters[:1])
    finally:
        recorder.use(before)
    left, stepped, other = (one for one in writer.kept if isinstance(one, GradientSums))
    assert (left.optimizer, stepped.optimizer, other.optimizer) == (None, 0, 1)
    assert [one.path for one in left.each] == ["weight", "bias"]
    assert [one.path for one in other.each] == ["weight"]
    for a, b in zip(left.each, stepped.each, strict=True):
        assert [value / 4 for value in a.numbers] == pytest.approx(b.numbers)


FORKED = """
import os, sys
import torch
from ddpcheck.probes.layouts import gradient_sums
torch.set_num_threads(2)
torch.randn(1 << 20).sqrt()  # by two threads, which a fork has not got
child = os.fork()
if child == 0:
    parameter = torch.nn.Parameter(torch.zeros(1 << 14))
    parameter.grad = torch.ones(1 << 14)
    os._exit(len(gradient_sums._sums_of(parameter)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_of_a_process_that_has_had_threads():
    """No operation is large enough for torch to want several threads: it would wait for those of its parent."""
    ran = progress.run([sys.executable, "-c", FORKED], text=True)
    assert ran.stdout.strip() == str(gradient_sums.NUMBERS), ran.stderr


@pytest.mark.filterwarnings("error")
def test_complex_gradients():
    """Half of them would be lost, with a warning of torch's in the program's output."""
    parameter = nn.Parameter(torch.zeros(4, dtype=torch.complex64))
    parameter.grad = torch.ones(4, dtype=torch.complex64)
    assert gradient_sums._sums_of(parameter) is None
