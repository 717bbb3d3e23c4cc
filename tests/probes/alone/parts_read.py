"""Numbers that are read of a rank's part of a DTensor."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from ddpcheck import evidence as ev

tensor = pytest.importorskip("torch.distributed.tensor")
if not hasattr(tensor, "DTensor"):
    pytest.skip("this torch has its DTensor elsewhere", allow_module_level=True)

from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402


@pytest.fixture
def mesh(recorded):
    """Of two ranks, of which only this one is there."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield dist.device_mesh.init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def shard(mesh):
    return tensor.DTensor.from_local(torch.arange(6.0).view(2, 3) + 1, mesh, [tensor.Shard(0)])


def test_norms_and_largest_elements(recorded, mesh):
    part = shard(mesh)
    for _ in range(2):
        assert part.norm().item() == pytest.approx(part.to_local().norm().item())
    assert float(part.abs().max()) == 6.0
    found = recorded(ev.PartRead)
    assert [(one.what, one.number) for one in found] == [("norm", 0), ("norm", 1), ("max", 0)]
    assert found[2].value == 6.0
    assert found[0].ranks == (0, 1)


def test_whole_numbers(recorded, mesh):
    """Of what every rank has, and of parts that are said to be such."""
    copy = tensor.DTensor.from_local(torch.ones(3), mesh, [tensor.Replicate()])
    assert copy.norm().item() > 1
    assert shard(mesh).to_local().norm().item() > 1
    assert recorded(ev.PartRead) == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_the_program_brings_together(recorded, mesh, device):
    """On a device as on the CPU."""
    part = shard(mesh)
    both = sum(part.norm().item() ** 2 for _ in range(2))
    with ddpcheck.simulated_devices(1):
        dist.all_reduce(torch.tensor([both], device=device))
    assert len(recorded(ev.PartsJoined)) == 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_loss_that_is_reduced(recorded, mesh, device):
    assert shard(mesh).norm().item() > 1
    with ddpcheck.simulated_devices(1):
        dist.all_reduce(torch.tensor(0.25, device=device))
    assert recorded(ev.PartsJoined) == []
