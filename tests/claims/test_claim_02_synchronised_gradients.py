"""Claim 2 (S0, S4): when backward() returns, .grad holds the synchronised gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ddpcheck
from fixtures import s0_basic
from tests.claims.findings import only_finding


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the gradients that a model holds, by the names of an unwrapped model."""
    found = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        found[name.removeprefix("module.")] = parameter.grad.clone()
    return found


def one_process(batches: list[s0_basic.Batch]) -> dict[str, Tensor]:
    """The gradients of the program's model, without DDP, on these batches as one."""
    model = s0_basic.build_model(seed=0)
    inputs = torch.cat([inputs for inputs, _ in batches])
    targets = torch.cat([targets for _, targets in batches])
    s0_basic.loss_of(model, (inputs, targets)).backward()
    return gradients(model)


@pytest.mark.ddp(world_size=[2, 4])
def test_gradient_is_that_of_one_process_on_all_data(ddp):
    """Each rank brings a batch of its own, and all end up with the gradient of the batches put together."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    batches = [s0_basic.make_batch(rank) for rank in range(ddp.world_size)]

    s0_basic.loss_of(model, batches[ddp.rank]).backward()

    ddpcheck.assert_gradients_identical(model)
    torch.testing.assert_close(gradients(model), one_process(batches))
    with pytest.raises(AssertionError, match="not close"):  # so that the comparison has something to tell apart
        torch.testing.assert_close(gradients(model), one_process([batches[ddp.rank]]))


@pytest.mark.ddp(world_size=[2, 4])
def test_batches_of_unequal_size_weigh_the_same(ddp):
    """Synchronised is not yet weighted: the gradient is the mean over ranks, not over samples, where sizes differ."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    batches = [s0_basic.make_batch(rank, size=20 if rank == 0 else 5) for rank in range(ddp.world_size)]

    s0_basic.loss_of(model, batches[ddp.rank]).backward()

    ddpcheck.assert_gradients_identical(model)
    alone = [one_process([batch]) for batch in batches]
    mean = {name: torch.stack([one[name] for one in alone]).mean(dim=0) for name in alone[0]}
    torch.testing.assert_close(gradients(model), mean)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(gradients(model), one_process(batches))


@pytest.mark.ddp(world_size=[2, 4])
def test_loss_from_the_unwrapped_module_is_caught(ddp):
    """A loss computed through ``model.module`` leaves each rank its own gradient: reported, with that cause."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    batches = [s0_basic.make_batch(rank) for rank in range(ddp.world_size)]

    s0_basic.loss_of(model.module, batches[ddp.rank]).backward()

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_gradients_identical(model)
    finding = only_finding(caught)
    assert finding.check == "gradient-sync"
    assert finding.ranks == tuple(range(1, ddp.world_size))
    assert finding.subject in dict(model.module.named_parameters())
    assert finding.count == 4
    assert "the loss came from `.module`" in finding.cause
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(gradients(model), one_process(batches))


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.parametrize("asserted", ["within", "after"])
def test_backward_under_no_sync_is_caught(ddp, asserted):
    """A forward and backward under no_sync() are not reduced: reported, within the block as well as after it."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    batch = s0_basic.make_batch(ddp.rank)

    with model.no_sync():
        s0_basic.loss_of(model, batch).backward()
        if asserted == "within":
            with pytest.raises(ddpcheck.Violation) as caught:
                ddpcheck.assert_gradients_identical(model)
    if asserted == "after":
        with pytest.raises(ddpcheck.Violation) as caught:
            ddpcheck.assert_gradients_identical(model)

    finding = only_finding(caught)
    assert finding.check == "gradient-sync"
    assert finding.ranks == tuple(range(1, ddp.world_size))
    assert finding.count == 4
    assert "no_sync()" in finding.cause


@pytest.mark.ddp(world_size=[2, 4])
def test_accumulation_that_ends_in_a_synchronising_backward_is_held(ddp):
    """The twin of the fault: gradients kept local under no_sync() are reduced with those of the last backward."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    first = [s0_basic.make_batch(rank, step=0) for rank in range(ddp.world_size)]
    second = [s0_basic.make_batch(rank, step=1) for rank in range(ddp.world_size)]

    with model.no_sync():
        s0_basic.loss_of(model, first[ddp.rank]).backward()
    s0_basic.loss_of(model, second[ddp.rank]).backward()

    ddpcheck.assert_gradients_identical(model)
    alone = one_process(first), one_process(second)
    torch.testing.assert_close(gradients(model), {name: alone[0][name] + alone[1][name] for name in alone[0]})


@pytest.mark.ddp(world_size=4)
def test_gradient_changed_on_one_rank_is_caught(ddp):
    """A gradient that one rank scales after backward() is reported with that rank and the factor."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    s0_basic.loss_of(model, s0_basic.make_batch(ddp.rank)).backward()
    if ddp.rank == 2:
        model.module.hidden.weight.grad.mul_(3)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_gradients_identical(model)

    finding = only_finding(caught)
    assert finding.check == "gradient-sync"
    assert finding.ranks == (2,)
    assert finding.subject == "hidden.weight"
    assert finding.count == 1
    assert "3 times the other's" in finding.found
    assert "they were equal when backward() ended" in finding.cause
