"""Claim 1 (S0, S2): the constructor broadcasts rank 0's parameters and buffers, whatever each rank had before."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

import ddpcheck
from fixtures import s0_basic
from tests.claims.findings import only_finding


def net_with_buffers(seed: int) -> nn.Sequential:
    """A net whose parameters and running statistics are another for each seed."""
    torch.manual_seed(seed)
    net = nn.Sequential(OrderedDict(linear=nn.Linear(10, 4), norm=nn.BatchNorm1d(4)))
    for _ in range(seed + 1):
        net(torch.randn(8, 10))  # in training mode, so that running statistics and their counter move
    return net


@pytest.mark.ddp(world_size=[2, 4])
def test_seeds_before_the_wrap_do_not_matter(ddp):
    """Ranks that start from seeds of their own hold rank 0's parameters once wrapped."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))

    ddpcheck.assert_initial_broadcast(model)
    ddpcheck.assert_replicas_identical(model)
    torch.testing.assert_close(
        dict(model.module.state_dict()), dict(s0_basic.build_model(seed=0).state_dict()), rtol=0, atol=0
    )


@pytest.mark.ddp(world_size=[2, 4])
def test_seeds_matter_without_the_wrap(ddp):
    """The same ranks without DDP differ from rank 0, and the finding says that nothing made them agree."""
    model = s0_basic.build_model(seed=ddp.rank)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_initial_broadcast(model)

    finding = only_finding(caught)
    assert finding.check == "initial-broadcast"
    assert finding.ranks == tuple(range(1, ddp.world_size))
    assert finding.count == 4
    assert "not in DistributedDataParallel" in finding.cause


@pytest.mark.ddp(world_size=[2, 4])
def test_reset_after_the_wrap_is_caught(ddp):
    """A layer that one rank initialises anew after the wrap is reported with that rank and the layer's name."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    odd = ddp.world_size - 1
    if ddp.rank == odd:
        torch.manual_seed(1234)
        model.module.output.reset_parameters()

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_replicas_identical(model)

    finding = only_finding(caught)
    assert finding.check == "initial-broadcast"
    assert finding.ranks == (odd,)
    assert finding.subject in ("output.weight", "output.bias")
    assert finding.count == 2
    assert "output.weight" in finding.found
    assert "output.bias" in finding.found
    assert "changed on some ranks after the wrap" in finding.cause


@pytest.mark.ddp(world_size=[2, 4])
def test_buffers_are_broadcast_too(ddp):
    """Running statistics that differ before the wrap, their integer counter too, are rank 0's after it."""
    model = net_with_buffers(seed=ddp.rank)
    assert model.norm.num_batches_tracked == ddp.rank + 1

    model = ddp.wrap(model)

    assert model.module.norm.num_batches_tracked == 1
    ddpcheck.assert_initial_broadcast(model)
    torch.testing.assert_close(
        dict(model.module.state_dict()), dict(net_with_buffers(seed=0).state_dict()), rtol=0, atol=0
    )


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.parametrize("buffer", ["running_mean", "num_batches_tracked"])
def test_buffer_changed_after_the_wrap_is_caught(ddp, buffer):
    """One element of one buffer, changed on one rank before the first step, is reported by name, place and values."""
    model = ddp.wrap(net_with_buffers(seed=ddp.rank))
    if ddp.rank == 1:
        getattr(model.module.norm, buffer).view(-1)[-1] += 3

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_initial_broadcast(model)

    finding = only_finding(caught)
    assert finding.check == "initial-broadcast"
    assert finding.ranks == (1,)
    assert finding.subject == f"norm.{buffer} (buffer)"
    assert finding.count == 1
    assert "by up to 3" in finding.found


@pytest.mark.ddp(world_size=[2, 4])
def test_documents_program_keeps_what_the_broadcast_gave(ddp):
    """The tutorial's program, whose ranks seed themselves, ends its steps with equal parameters on all ranks."""
    model, losses = s0_basic.train(ddp.rank, steps=3)

    assert len(losses) == 3
    ddpcheck.assert_replicas_identical(model)
    ddpcheck.assert_parameters_identical(model)
