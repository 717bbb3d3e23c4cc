"""The first invariants on GPUs: under NCCL, and with gloo on CUDA tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import ddpcheck


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


@pytest.mark.ddp(world_size=[1, 2], backend="nccl", device="cuda")
def test_a_step_under_nccl(ddp: Any) -> None:
    """A step in ranks forked from the zygote, each on the GPU of its local rank, holds the invariants."""
    torch.manual_seed(ddp.rank)
    model = ddp.wrap(net())
    assert {p.device for p in model.parameters()} == {torch.device("cuda", ddp.local_rank)}
    ddpcheck.assert_initial_broadcast(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 8, device=ddp.device)).sum().backward()
    ddpcheck.assert_gradients_identical(model)
    optimizer.step()
    ddpcheck.assert_parameters_identical(model)


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda")
def test_a_fault_under_nccl(ddp: Any) -> None:
    """A gradient that was not reduced is found, with its elements, on GPUs too."""
    torch.manual_seed(ddp.rank)
    model = ddp.wrap(net())
    model.module(torch.randn(4, 8, device=ddp.device)).sum().backward()
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_gradients_identical(model)
    assert caught.value.findings[0].check == "gradient-sync"


@pytest.mark.ddp(world_size=1, backend="gloo", device="cuda")
def test_gloo_on_cuda_tensors(ddp: Any) -> None:
    """gloo reduces CUDA tensors, and the invariants see them."""
    tensor = torch.ones(3, device=ddp.device)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [ddp.world_size] * 3
    ddpcheck.assert_replicas_identical(ddp.wrap(net()))
