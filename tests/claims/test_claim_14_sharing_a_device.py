"""Claim 14 (S0): devices cannot be shared between processes.

Refuted in part: gloo never minded, and neither does NCCL from 2.30 on, if it is
allowed by NCCL_MULTI_RANK_GPU_ENABLE=1. Before that, and without the variable,
NCCL refuses.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from ddpcheck import assert_device_placement, simulated_devices
from ddpcheck.ranks.process_group import takes_one_device_only
from fixtures import s0_basic
from tests.claims.findings import only_finding


def train_on(device: torch.device, rank: int) -> torch.nn.parallel.DistributedDataParallel:
    """The tutorial's model after three steps on this device."""
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(s0_basic.build_model(seed=rank).to(device))
    optimizer = s0_basic.make_optimizer(model)
    for step in range(3):
        inputs, targets = s0_basic.make_batch(rank, step)
        s0_basic.train_step(model, optimizer, (inputs.to(device), targets.to(device)))
    return model


@pytest.mark.ddp(world_size=[2, 4])
def test_ranks_share_a_device_under_gloo(ddp):
    """Simulated: ranks on one device train, equal to each other and to ranks with a device each, to the bit."""
    with simulated_devices(4):
        shared = train_on(torch.device("cuda:0"), ddp.rank)
        ddpcheck.assert_parameters_identical(shared)
        assert_device_placement(shared, devices=["cuda:0"], sharing=True)
        apart = train_on(torch.device("cuda", ddp.rank), ddp.rank)
        found, expected = ([p.cpu() for p in model.parameters()] for model in (shared, apart))
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.ddp(world_size=2)
def test_sharing_by_accident_is_caught(ddp):
    """Simulated: the same sharing, not said to be on purpose, is named with the ranks and the device."""
    with simulated_devices(4):
        model = train_on(torch.device("cuda:0"), ddp.rank)
        with pytest.raises(ddpcheck.Violation) as caught:
            assert_device_placement(model, devices=["cuda:0"])
        finding = only_finding(caught)
        assert finding.ranks == tuple(range(ddp.world_size))
        assert finding.subject == "cuda:0"
        assert "sharing=True" in finding.advice


@pytest.mark.gpu(1)
@pytest.mark.ddp(world_size=2, device="cuda")
def test_ranks_share_a_gpu_under_gloo(ddp):
    """Two gloo ranks train on one GPU, which the runtime has given to both: on purpose."""
    model = train_on(ddp.device, ddp.rank)
    ddpcheck.assert_parameters_identical(model)
    assert_device_placement(model)


@pytest.mark.gpu(1, real="it is NCCL that refuses or allows")
@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda")
def test_ranks_share_a_gpu_under_a_newer_nccl(ddp):
    """From NCCL 2.30 on two ranks train on one GPU; with an older one this is skipped, and says so."""
    model = train_on(ddp.device, ddp.rank)
    ddpcheck.assert_parameters_identical(model)
    assert_device_placement(model)


@pytest.mark.gpu(1, real="it is NCCL that refuses or allows")
@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda")
def test_nccl_refuses_to_share_unless_it_is_allowed(ddp, monkeypatch):
    """Without the variable every NCCL says that the GPU is a duplicate, on both ranks."""
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    # Newer versions of torch would bind the group to the device of the rank's number, which is another one or none.
    bound = {"device_id": ddp.device} if takes_one_device_only() else {}
    with pytest.raises(RuntimeError, match=r"(?i)duplicate gpu|invalid usage"):
        dist.all_reduce(torch.ones(1, device=ddp.device), group=dist.new_group(backend="nccl", **bound))
