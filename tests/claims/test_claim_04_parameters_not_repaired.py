"""Claim 4 (S4): gradients are synchronised, parameters are not: what has parted stays apart."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import ddpcheck
from fixtures import s0_basic
from tests.claims.findings import only_finding

PUSH = 0.5


def on_every_rank(ddp, tensor: Tensor) -> list[Tensor]:
    """This tensor, as each of the ranks holds it."""
    gathered = [torch.empty_like(tensor) for _ in range(ddp.world_size)]
    dist.all_gather(gathered, tensor.detach())
    return gathered


def push(parameter: Tensor) -> None:
    """Change one element, as a stray edit on one rank would."""
    with torch.no_grad():
        parameter[3, 4] += PUSH


@pytest.mark.ddp(world_size=[2, 4])
def test_parameters_pushed_apart_stay_apart(ddp):
    """One element changed on one rank is off by as much after every later step, though gradients agree each time."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    optimizer = s0_basic.make_optimizer(model)
    s0_basic.train_step(model, optimizer, s0_basic.make_batch(ddp.rank, step=0))
    ddpcheck.assert_parameters_identical(model)
    if ddp.rank == 1:
        push(model.module.hidden.weight)

    for step in range(1, 11):
        s0_basic.train_step(model, optimizer, s0_basic.make_batch(ddp.rank, step))

        ddpcheck.assert_gradients_identical(model)
        with pytest.raises(ddpcheck.Violation) as caught:
            ddpcheck.assert_parameters_identical(model)
        finding = only_finding(caught)
        assert finding.check == "parameter-sync"
        assert finding.ranks == (1,)
        assert finding.subject == "hidden.weight"
        assert "by up to 0.5 at [3, 4]" in finding.found
        assert "changed on one rank alone" in finding.cause

        weights = on_every_rank(ddp, model.module.hidden.weight)
        torch.testing.assert_close(weights[1][3, 4] - weights[0][3, 4], torch.tensor(PUSH), rtol=0, atol=1e-5)


@pytest.mark.ddp(world_size=4)
def test_rank_that_was_changed_is_named_even_if_it_is_rank_0(ddp):
    """After the first step no rank is the reference by right: the one that differs from the others is named."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    optimizer = s0_basic.make_optimizer(model)
    if ddp.rank == 0:
        push(model.module.hidden.weight)
    s0_basic.train_step(model, optimizer, s0_basic.make_batch(ddp.rank))

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_parameters_identical(model)

    finding = only_finding(caught)
    assert finding.check == "parameter-sync"
    assert finding.ranks == (0,)
    assert finding.subject == "hidden.weight"


@pytest.mark.ddp(world_size=[2, 4])
def test_untouched_twin_is_silent(ddp):
    """The same steps without the change keep all parameters equal, to the bit."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    optimizer = s0_basic.make_optimizer(model)

    for step in range(11):
        s0_basic.train_step(model, optimizer, s0_basic.make_batch(ddp.rank, step))
        ddpcheck.assert_gradients_identical(model)
        ddpcheck.assert_parameters_identical(model)

    weights = on_every_rank(ddp, model.module.hidden.weight)
    assert all(torch.equal(weight, weights[0]) for weight in weights)
