"""DDP over gloo on simulated devices: the two-device model in four ranks on eight devices, and one device each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from fixtures import s0_model_parallel
from fixtures.s0_basic import make_batch
from fixtures.s0_model_parallel import TwoDevices, devices_of, train


def _values(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().cpu().clone() for parameter in model.parameters()]


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


WRAPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bucket views": {"gradient_as_bucket_view": True},
    "unused parameters": {"find_unused_parameters": True},
    "static graph": {"static_graph": True},
    "small buckets": {"bucket_cap_mb": 0.0001},
}


@pytest.mark.ddp(world_size=4)
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.few(2)
def test_model_on_two_devices(ddp: Any, wrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains on devices 2r and 2r + 1, gradients are with their parameters, and all is the CPU's to the bit."""
    options = WRAPS[wrap]
    monkeypatch.setattr(
        s0_model_parallel, "DistributedDataParallel", lambda module: DistributedDataParallel(module, **options)
    )
    plain = _values(train(ddp.rank, (torch.device("cpu"), torch.device("cpu"))))
    with ddpcheck.simulated_devices(8):
        devices = devices_of(ddp.local_rank, ddp.local_world_size)
        assert [device.index for device in devices] == [2 * ddp.rank, 2 * ddp.rank + 1]
        model = train(ddp.rank, devices)
        assert [parameter.device for parameter in model.parameters()] == [devices[0]] * 2 + [devices[1]] * 2
        assert all(p.grad is not None and p.grad.device == p.device for p in model.parameters())
        assert model(make_batch(ddp.rank, 9)[0]).device == devices[1]
        trained = _values(model)
    assert _same(plain, trained)


@pytest.mark.ddp(world_size=4)
def test_mistakes_with_two_devices(ddp: Any) -> None:
    """A missing move, targets on the wrong device, and device_ids are refused in torch's words, on every rank."""
    with ddpcheck.simulated_devices(8):
        first, second = devices_of(ddp.local_rank, ddp.local_world_size)
        with pytest.raises(ValueError, match="device_ids"):
            DistributedDataParallel(TwoDevices(first, second), device_ids=[first])
        model = DistributedDataParallel(TwoDevices(first, second))
        inputs, targets = make_batch(ddp.rank, 0)
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            F.mse_loss(model(inputs), targets.to(first))
        model.module.forward = lambda x: model.module.output(torch.relu(model.module.hidden(x.to(first))))
        with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*wrapper_CUDA_addmm"):
            model(inputs)


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}], ids=["plain", "bucket-views"])
def test_one_device_each(ddp: Any, options: dict[str, Any]) -> None:
    """With device_ids DDP moves the inputs, buffers are broadcast, and every parameter is the CPU's to the bit."""

    def trained(device: Any) -> list[Tensor]:
        torch.manual_seed(ddp.rank)
        network = nn.Sequential(nn.Linear(10, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5)).to(device)
        model = DistributedDataParallel(network, device_ids=None if device == "cpu" else [device], **options)
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(3):
            inputs, targets = make_batch(ddp.rank, step)
            optimizer.zero_grad()
            F.mse_loss(model(inputs), targets.to(device)).backward()
            optimizer.step()
        return _values(model)

    plain = trained("cpu")
    with ddpcheck.simulated_devices(2):
        torch.cuda.set_device(ddp.local_rank)
        simulated = trained(ddp.local_rank)
    assert _same(plain, simulated)


@pytest.mark.ddp(world_size=2)
def test_collectives(ddp: Any) -> None:
    """Tensors on devices take part, and stay where they are."""
    with ddpcheck.simulated_devices(2):
        mine = torch.full((2,), float(ddp.rank), device=f"cuda:{ddp.rank}")
        gathered = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(gathered, mine)
        dist.all_reduce(mine)
        assert mine.tolist() == [1.0, 1.0]
        assert [each.tolist() for each in gathered] == [[0.0, 0.0], [1.0, 1.0]]
        assert {each.device for each in (mine, *gathered)} == {torch.device("cuda", ddp.rank)}
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.cuda.set_device(ddp.rank + 2)


@pytest.mark.ddp(world_size=2)
def test_normalisation_over_ranks(ddp: Any) -> None:
    """SyncBatchNorm computes by kernels that GPUs alone have, and says so on every rank."""
    with ddpcheck.simulated_devices(2), pytest.raises(ddpcheck.NotSimulated, match="kernel for GPUs alone"):
        nn.SyncBatchNorm(3).to(ddp.rank)(torch.rand(4, 3, device=f"cuda:{ddp.rank}"))


@pytest.mark.ddp(world_size=2)
def test_model_outlives_the_simulation(ddp: Any) -> None:
    """A wrapper that was made inside goes on afterwards, on the CPU."""
    with ddpcheck.simulated_devices(2):
        model = DistributedDataParallel(nn.Linear(3, 1).to(f"cuda:{ddp.rank}"), device_ids=[ddp.rank])
        model(torch.ones(2, 3)).sum().backward()
    bare = DistributedDataParallel(model.module)
    for _ in range(2):
        bare(torch.ones(2, 3)).sum().backward()
    assert str(model.module.weight.grad.device) == "cpu"
