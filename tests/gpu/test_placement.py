"""Devices of ranks that are real, or as good as real: who has which, and what a wrong choice looks like.

One GPU is enough for what ranks share; the others say how many they need.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddpcheck
from ddpcheck.ranks.process_group import takes_one_device_only
from fixtures.s0_model_parallel import TwoDevices, train
from tests.gpu.nets import plain_net


@pytest.mark.ddp(world_size=[1, 2, 4], backend="nccl", device="cuda", timeout=180)
def test_each_rank_sees_the_gpus_of_the_test(ddp: Any) -> None:
    """They are numbered from 0; the rank's own is its current device, and it exists."""
    there = torch.cuda.device_count()
    assert 1 <= there <= ddp.world_size
    assert ddp.device == torch.device("cuda", ddp.rank % there)
    assert torch.cuda.current_device() == ddp.device.index
    assert torch.ones(1, device="cuda").device == ddp.device
    wrapped = ddp.wrap(plain_net())
    assert wrapped.device_ids == [ddp.device.index]
    ddpcheck.assert_device_placement(wrapped)


@pytest.mark.ddp(world_size=1, device="cuda", timeout=180)
@pytest.mark.gpu(real="what the driver makes of the variable")
def test_the_variable_is_set_before_cuda_begins(ddp: Any) -> None:
    """CUDA itself, and not torch alone, sees one GPU."""
    assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 1
    assert torch._C._cuda_getDeviceCount() == 1


@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=180)
@pytest.mark.gpu(2)
def test_two_ranks_on_one_gpu_by_accident(ddp: Any) -> None:
    """Everything is on the first GPU, since nothing was chosen by the local rank."""
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_device_placement(plain_net().to("cuda:0"))
    assert 1 in caught.value.findings[0].ranks


@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=180)
@pytest.mark.gpu(2)
def test_two_ranks_on_gpus_of_their_own(ddp: Any) -> None:
    """The same model on the device of each rank holds."""
    ddpcheck.assert_device_placement(plain_net().to(ddp.device))


@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=180)
@pytest.mark.gpu(1)
def test_ranks_that_share_on_purpose(ddp: Any) -> None:
    """Where the runtime has given one GPU to both ranks, sharing it is no fault."""
    ddpcheck.assert_device_placement(ddp.wrap(plain_net()))


@pytest.mark.ddp(world_size=2, device="cuda", timeout=180)
@pytest.mark.gpu(1)
def test_the_global_rank_as_index(ddp: Any) -> None:
    """On a second machine the global rank is no index of a GPU; CUDA says so in its own words."""
    global_rank = ddp.rank + ddp.world_size
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1, device=f"cuda:{global_rank}")


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=180)
def test_a_barrier_uses_the_ranks_own_device(ddp: Any) -> None:
    """A barrier that has to guess takes the current device, which is the rank's own, and the next collective agrees."""
    dist.barrier()
    total = torch.ones(1, device=ddp.device)
    dist.all_reduce(total)
    assert float(total) == ddp.world_size
    assert torch.cuda.current_device() == ddp.device.index


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=180)
@pytest.mark.gpu(real="NCCL, which moves nothing that is not on a GPU")
def test_nccl_moves_no_cpu_tensor(ddp: Any) -> None:
    """A metric that stayed on the CPU is refused by an NCCL group; moved to the device it is reduced."""
    with pytest.raises(RuntimeError, match=r"(?i)backend|device"):
        dist.all_reduce(torch.ones(1))
    moved = torch.ones(1, device=ddp.device)
    dist.all_reduce(moved)
    assert float(moved) == ddp.world_size


@pytest.mark.ddp(world_size=2, device="cuda", timeout=180)
def test_inputs_and_labels_elsewhere(ddp: Any) -> None:
    """A batch that stayed on the CPU is refused by torch; the assertion says whose it is, before that."""
    model = plain_net().to(ddp.device)
    x = torch.randn(4, 8)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        model(x)
    with pytest.raises(ddpcheck.Violation):
        ddpcheck.assert_device_placement(model, inputs=x)
    outputs = model(x.to(ddp.device))
    ddpcheck.assert_device_placement(model, inputs=x.to(ddp.device), outputs=outputs)


# --- a model on several devices


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=180)
@pytest.mark.gpu(4)
def test_a_model_on_two_devices_in_each_rank(ddp: Any) -> None:
    """Devices 2r and 2r + 1 keep the ranks apart; forward, backward and step agree; an off-by-one mapping is told."""
    if takes_one_device_only():
        pytest.skip("from torch 2.15 on NCCL takes tensors of one GPU in each rank, unless TORCH_DIST_USE_NCCL2=0")
    assert ddp.device == torch.device("cuda", 2 * ddp.rank)
    own = torch.device("cuda", 2 * ddp.rank), torch.device("cuda", 2 * ddp.rank + 1)
    model = train(ddp.rank, own)
    assert model(torch.randn(3, 10)).device == own[1]
    ddpcheck.assert_parameters_identical(model)
    ddpcheck.assert_device_placement(model, devices_per_rank=2)
    shifted = TwoDevices(torch.device("cuda", ddp.rank), torch.device("cuda", ddp.rank + 1))
    with pytest.raises(ddpcheck.Violation):
        ddpcheck.assert_device_placement(shifted, devices_per_rank=2)


@pytest.mark.ddp(world_size=1, backend="nccl", device="cuda", timeout=180)
@pytest.mark.gpu(2)
def test_device_ids_for_a_model_on_two_devices(ddp: Any) -> None:
    """DDP refuses them in its own words; a tensor that is not moved between the layers is CUDA's error."""
    model = TwoDevices(torch.device("cuda", 0), torch.device("cuda", 1))
    with pytest.raises(ValueError, match="device_ids"):
        nn.parallel.DistributedDataParallel(model, device_ids=[0])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        model.output(model.hidden(torch.randn(3, 10, device="cuda:0")))


@pytest.mark.gpu(2)
def test_data_parallel_equals_the_wrapper() -> None:
    """One process on two GPUs has the gradients of the whole batch, as ranks have."""
    torch.manual_seed(0)
    model = plain_net().to("cuda:0")
    x = torch.randn(8, 8, device="cuda:0")
    model(x).square().mean().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    nn.DataParallel(model, device_ids=[0, 1])(x).square().mean().backward()
    for parameter, reference in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, reference)


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=120)
@pytest.mark.gpu(2, real="communicators, which are split")
def test_a_group_that_its_members_alone_make(ddp: Any) -> None:
    """The other rank does not call, and nobody waits for it; a group that all make is there beside it."""
    both = dist.new_group([0, 1])
    if ddp.rank == 0:
        own = dist.new_group([0], use_local_synchronization=True)
        total = torch.ones(1, device=ddp.device)
        dist.all_reduce(total, group=own)
        assert total.item() == 1
    total = torch.ones(1, device=ddp.device)
    dist.all_reduce(total, group=both)
    assert total.item() == 2
