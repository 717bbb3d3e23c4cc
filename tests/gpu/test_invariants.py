"""The invariants of a step on GPUs, each with a fault that fires, under NCCL and under gloo.

Needs one GPU and NCCL 2.30 or newer, or as many GPUs as ranks. The gloo half
needs one GPU, whatever NCCL there is.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddpcheck
from tests.gpu.nets import batch, net, oracle, plain_net

nccl = pytest.mark.ddp(world_size=[2, 4], backend="nccl", device="cuda", timeout=180)
gloo = pytest.mark.ddp(world_size=[2, 4], backend="gloo", device="cuda", timeout=180)


def loss(model: nn.Module, ddp: Any) -> torch.Tensor:
    x, y = batch(ddp.rank)
    return nn.functional.cross_entropy(model(x.to(ddp.device)), y.to(ddp.device))


def holds(ddp: Any) -> None:
    """A whole step in which every invariant holds."""
    torch.manual_seed(ddp.rank)
    model = ddp.wrap(net())
    assert {p.device for p in model.parameters()} == {ddp.device}
    ddpcheck.assert_initial_broadcast(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss(model, ddp).backward()
        ddpcheck.assert_gradients_identical(model)
        optimizer.step()
        ddpcheck.assert_parameters_identical(model)
    ddpcheck.assert_replicas_identical(model)
    ddpcheck.assert_device_placement(model, optimizer=optimizer)


@pytest.mark.ddp(world_size=[1, 2, 4], backend="nccl", device="cuda", timeout=180)
def test_a_step_under_nccl(ddp: Any) -> None:
    """A step in ranks forked from the zygote, on the GPUs of the test, holds the invariants."""
    holds(ddp)


@pytest.mark.ddp(world_size=[1, 2, 4], backend="gloo", device="cuda", timeout=180)
def test_a_step_under_gloo(ddp: Any) -> None:
    """gloo reduces CUDA tensors, on one GPU for all ranks where there is no other."""
    holds(ddp)


def violated(check: str, assertion: Any, model: nn.Module) -> str:
    with pytest.raises(ddpcheck.Violation) as caught:
        assertion(model)
    (finding,) = caught.value.findings
    assert finding.check == check
    return str(caught.value)


def not_broadcast(ddp: Any) -> None:
    model = ddp.wrap(net())
    if ddp.rank == 1:
        with torch.no_grad():
            model.module[0].weight[3, 2] += 1.0
    text = violated("initial-broadcast", ddpcheck.assert_initial_broadcast, model)
    assert "0.weight" in text
    assert "[3, 2]" in text


def not_reduced(ddp: Any) -> None:
    torch.manual_seed(0)
    model = ddp.wrap(net())
    loss(model.module, ddp).backward()
    assert "the module inside of the wrapper" in violated("gradient-sync", ddpcheck.assert_gradients_identical, model)


def nan_on_one_rank(ddp: Any) -> None:
    model = ddp.wrap(net())
    loss(model, ddp).backward()
    if ddp.rank == 1:
        model.module[3].bias.grad[1] = float("nan")
    assert "nan" in violated("gradient-sync", ddpcheck.assert_gradients_identical, model)


def edited_after_the_step(ddp: Any) -> None:
    model = ddp.wrap(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss(model, ddp).backward()
    optimizer.step()
    ddpcheck.assert_parameters_identical(model)
    if ddp.rank == ddp.world_size - 1:
        with torch.no_grad():
            model.module[3].bias[0] += 1e-3
    assert "3.bias" in violated("parameter-sync", ddpcheck.assert_parameters_identical, model)


def statistics_of_its_own(ddp: Any) -> None:
    model = ddp.wrap(net())
    if ddp.rank == 1:
        model.module[1].running_mean.add_(1.0)
    assert "running_mean" in violated("initial-broadcast", ddpcheck.assert_replicas_identical, model)


def sign_of_zero(ddp: Any) -> None:
    """Other bits of one number are no fault: the elements decide, where digests differ."""
    model = ddp.wrap(nn.Linear(4, 4))
    with torch.no_grad():
        model.module.bias.zero_()
        if ddp.rank == 1:
            model.module.bias.neg_()
    ddpcheck.assert_initial_broadcast(model)


FAULTS = [not_broadcast, not_reduced, nan_on_one_rank, edited_after_the_step, statistics_of_its_own, sign_of_zero]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=180)
def test_faults_under_nccl(ddp: Any, fault: Any) -> None:
    """Each fault is found on the GPU, and told with its elements."""
    fault(ddp)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=180)
def test_faults_under_gloo(ddp: Any, fault: Any) -> None:
    """The same where gloo moves CUDA tensors."""
    fault(ddp)


# --- the oracle


def equals_one_process(ddp: Any) -> None:
    expected = oracle(ddp.world_size, ddp.device)
    torch.manual_seed(0)
    model = ddp.wrap(plain_net())
    loss(model, ddp).backward()
    for parameter, reference in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, reference)
    scaled = [p.grad * ddp.world_size for p in model.parameters()]
    assert any(not torch.allclose(s, r) for s, r in zip(scaled, expected, strict=True))


@nccl
def test_gradients_are_those_of_one_process_under_nccl(ddp: Any) -> None:
    """The mean over the ranks is the gradient of one process on the whole batch; the sum is not."""
    equals_one_process(ddp)


@gloo
def test_gradients_are_those_of_one_process_under_gloo(ddp: Any) -> None:
    """The same where gloo moves CUDA tensors."""
    equals_one_process(ddp)


@nccl
def test_metrics_on_gpus(ddp: Any) -> None:
    """A metric that is added up on the GPUs equals that of one process; a mean of the ranks' means does not."""
    values = torch.arange(7.0)[ddp.rank :: ddp.world_size].square().to(ddp.device)
    totals = torch.stack([values.sum(), torch.tensor(float(len(values)), device=ddp.device)])
    dist.all_reduce(totals)
    assert float(totals[0] / totals[1]) == 13.0
    mean = values.mean()
    dist.all_reduce(mean)
    assert float(mean / ddp.world_size) != 13.0


# --- what of a data loader a GPU changes, which is nothing, and is seen once


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=180)
def test_shards_are_those_of_any_device(ddp: Any) -> None:
    """Shards and numbers of batches hold beside a model on GPUs; without a sampler they do not."""
    dataset = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(20, 2))
    sampler: Any = torch.utils.data.DistributedSampler(dataset)
    loader = torch.utils.data.DataLoader(dataset, batch_size=3, sampler=sampler)
    ddpcheck.assert_shards_partition(loader)
    ddpcheck.assert_batch_count(loader)
    with pytest.raises(ddpcheck.Violation):
        ddpcheck.assert_shards_partition(torch.utils.data.DataLoader(dataset, batch_size=3))


# --- mixed precision


@nccl
@pytest.mark.gpu(real="the arithmetic of autocast, and a scaler's kernels")
def test_a_scaler_and_bf16(ddp: Any) -> None:
    """Autocast and GradScaler hold the invariants; a step that one rank's overflow skips is skipped by all."""
    torch.manual_seed(ddp.rank)
    model = ddp.wrap(plain_net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(model, ddp)
        if step == 1 and ddp.rank == 0:
            value = value * float("inf")
        scaler.scale(value).backward()
        ddpcheck.assert_gradients_identical(model)
        scaler.step(optimizer)
        scaler.update()
        ddpcheck.assert_parameters_identical(model)
    scales = [torch.zeros(1, device=ddp.device) for _ in range(ddp.world_size)]
    dist.all_gather(scales, torch.tensor([scaler.get_scale()], device=ddp.device))
    assert {float(s) for s in scales} == {512.0}


# --- random streams


@nccl
def test_dropout_differs_between_ranks_and_shuffles_agree(ddp: Any) -> None:
    """Streams on GPUs are seeded by rank, or alike, as the test says; equal masks are seen, and other ones too."""

    def masks(seed: int) -> set[bytes]:
        torch.manual_seed(seed)
        mask = nn.functional.dropout(torch.ones(256, device=ddp.device))
        every = [torch.zeros_like(mask) for _ in range(ddp.world_size)]
        dist.all_gather(every, mask)
        return {one.cpu().numpy().tobytes() for one in every}

    assert len(masks(1000)) == 1
    assert len(masks(2000 + ddp.rank)) == ddp.world_size
