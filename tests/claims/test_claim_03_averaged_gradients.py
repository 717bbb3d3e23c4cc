"""Claim 3 (S4): gradients are averaged over the ranks, not summed."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from fixtures import s0_basic
from tests.claims.findings import only_finding


def flat_gradient(model: nn.Module) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def ratio_of_sum(model: DistributedDataParallel, batch: s0_basic.Batch) -> float:
    """How many times DDP's gradient goes into the sum of the ranks' own, found by least squares over all elements.

    Each rank's own gradient comes from a copy of the model outside of DDP,
    before DDP's is replaced; the sum is an all-reduce of those.
    """
    copy = s0_basic.build_model(seed=0).double()
    copy.load_state_dict(model.module.state_dict())
    s0_basic.loss_of(copy, batch).backward()
    summed = flat_gradient(copy)
    dist.all_reduce(summed, op=dist.ReduceOp.SUM)
    reduced = flat_gradient(model)
    ratio = float(summed @ reduced / (reduced @ reduced))
    torch.testing.assert_close(summed, ratio * reduced)  # one factor explains every element
    return ratio


def wrapped(ddp) -> DistributedDataParallel:
    """The program's model in double precision, where a ratio is plain to see."""
    return ddp.wrap(s0_basic.build_model(seed=ddp.rank).double())


def batch_of(rank: int) -> s0_basic.Batch:
    inputs, targets = s0_basic.make_batch(rank)
    return inputs.double(), targets.double()


@pytest.mark.ddp(world_size=[2, 4])
def test_sum_of_gradients_is_world_size_times_ddps(ddp):
    """The ranks' own gradients add up to DDP's gradient times the world size."""
    model = wrapped(ddp)

    s0_basic.loss_of(model, batch_of(ddp.rank)).backward()

    assert ratio_of_sum(model, batch_of(ddp.rank)) == pytest.approx(ddp.world_size)


@pytest.mark.ddp(world_size=[2, 4])
def test_loss_multiplied_by_world_size_is_caught(ddp):
    """A loss scaled as if DDP summed gives the ratio 1; ranks that all do so agree, so only the ratio shows it."""
    model = wrapped(ddp)

    (ddp.world_size * s0_basic.loss_of(model, batch_of(ddp.rank))).backward()

    ratio = ratio_of_sum(model, batch_of(ddp.rank))
    with pytest.raises(AssertionError):
        assert ratio == pytest.approx(ddp.world_size)
    assert ratio == pytest.approx(1)
    ddpcheck.assert_gradients_identical(model)


@pytest.mark.ddp(world_size=[2, 4])
def test_loss_multiplied_on_one_rank_is_caught(ddp):
    """A loss scaled on one rank only leaves no single ratio, though the reduced gradients still agree."""
    model = wrapped(ddp)
    factor = ddp.world_size if ddp.rank == 0 else 1

    (factor * s0_basic.loss_of(model, batch_of(ddp.rank))).backward()

    with pytest.raises(AssertionError, match="not close"):
        ratio_of_sum(model, batch_of(ddp.rank))
    ddpcheck.assert_gradients_identical(model)


@pytest.mark.ddp(world_size=[2, 4])
def test_unreduced_gradient_is_no_average(ddp):
    """Gradients that were never reduced leave no single ratio either, and the ranks disagree."""
    model = wrapped(ddp)

    s0_basic.loss_of(model.module, batch_of(ddp.rank)).backward()

    with pytest.raises(AssertionError, match="not close"):
        ratio_of_sum(model, batch_of(ddp.rank))
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_gradients_identical(model)
    assert only_finding(caught).check == "gradient-sync"
