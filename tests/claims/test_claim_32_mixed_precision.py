"""Claim 32 (S4): mixed precision combines with DDP."""

from __future__ import annotations

import pytest
import torch

import ddpcheck
from fixtures import s0_basic
from tests.claims.findings import only_finding


def loss_under_autocast(model: torch.nn.Module, batch: s0_basic.Batch) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(batch[0])
        assert outputs.dtype is torch.bfloat16
        return torch.nn.functional.mse_loss(outputs.float(), batch[1])


@pytest.mark.ddp(world_size=[2, 4])
def test_bf16_autocast_holds_the_invariants(ddp):
    """Ten steps with bfloat16 in the forward pass: gradients and parameters in single precision, and equal."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    ddpcheck.assert_initial_broadcast(model)
    optimizer = s0_basic.make_optimizer(model)
    for step in range(10):
        optimizer.zero_grad()
        loss_under_autocast(model, s0_basic.make_batch(ddp.rank, step)).backward()
        ddpcheck.assert_gradients_identical(model)
        optimizer.step()
        ddpcheck.assert_parameters_identical(model)

    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.ddp(world_size=[2, 4])
def test_gradient_under_autocast_is_near_that_of_single_precision(ddp):
    """It is the gradient of one process on all data, in single precision, as far as bfloat16 can tell."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    loss_under_autocast(model, s0_basic.make_batch(ddp.rank)).backward()

    alone = s0_basic.build_model(seed=0)
    batches = [s0_basic.make_batch(rank) for rank in range(ddp.world_size)]
    s0_basic.loss_of(alone, tuple(map(torch.cat, zip(*batches, strict=True)))).backward()
    for mine, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=0.05, atol=0.01)
    assert not torch.equal(model.module.hidden.weight.grad, alone.hidden.weight.grad)  # bfloat16 was at work


@pytest.mark.ddp(world_size=2)
def test_autocast_around_the_unwrapped_module_is_caught(ddp):
    """Mixed precision is no excuse: a loss from ``model.module`` is as unsynchronised under autocast as without."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    loss_under_autocast(model.module, s0_basic.make_batch(ddp.rank)).backward()

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_gradients_identical(model)
    assert only_finding(caught).check == "gradient-sync"


SCALED = """
dist.init_process_group("gloo")
torch.manual_seed(1 + rank)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (8 + {other} * rank))
for _ in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(torch.randn(8, 4)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("other", [1, 0], ids=["own-scale", "same-scale"])
def test_scale_that_differs_between_ranks_is_caught(watch, other):
    """Ranks that scale their losses by other factors sum what cannot be summed: optimizer-sync; the twin is silent."""
    seen = watch(SCALED.format(other=other))
    assert seen.ended_well
    if not other:
        assert seen.findings == []
        assert seen.said["checked"]["optimizer-sync"]
        return
    (finding,) = seen.findings
    assert "optimizer-sync" in (finding["check"], *finding["also"])
    assert finding["ranks"] == [1]
    assert seen.line(finding) == "scaler.step(optimizer)"
