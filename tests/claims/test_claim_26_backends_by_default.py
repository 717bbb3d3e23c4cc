"""Claim 26 (S3): with no backend named, gloo and nccl are both made.

Refuted in part: torch makes what can serve the devices that it sees. Without a
GPU that is gloo for the CPU and nothing for "cuda", also where NCCL is there.
With one it is nccl for "cuda", and in newer versions nothing for the CPU.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from tests.claims.groups import group_by_file


def serving(device: str) -> str:
    """The name of the backend that serves this kind of device in the default group."""
    return dist.group.WORLD._get_backend(torch.device(device)).name()


@pytest.mark.ddp(world_size=2)
def test_gloo_serves_the_cpu(ddp):
    """A group with no backend named reduces CPU tensors, by gloo."""
    with group_by_file(ddp, backend=None):
        assert serving("cpu") == "gloo"
        ones = torch.ones(3)
        dist.all_reduce(ones)
        assert ones.tolist() == [ddp.world_size] * 3


@pytest.mark.ddp(world_size=2)
def test_nothing_serves_gpus_where_there_are_none(ddp):
    """Where torch sees no GPU, no nccl is made, and a tensor there would be refused with the kind of its device."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with group_by_file(ddp, backend=None):
        assert dist.get_backend_config() == "cpu:gloo"
        with pytest.raises(RuntimeError, match="No backend type associated with device type cuda"):
            serving("cuda")


@pytest.mark.ddp(world_size=2)
def test_a_backend_that_is_named_serves_all_devices(ddp):
    """The twin: gloo by name serves the CPU and GPUs alike."""
    with group_by_file(ddp):
        assert serving("cpu") == serving("cuda") == "gloo"


@pytest.mark.ddp(world_size=1, device="cuda")
def test_nccl_serves_gpus_where_there_are_some(ddp):
    """Where torch sees a GPU, nccl is made for it, under whichever of its names; older versions make gloo beside it."""
    with group_by_file(ddp, backend=None):
        assert serving("cuda").startswith("nccl")
        served = dist.get_backend_config().split(",")
        assert served[-1].startswith("cuda:nccl")
        assert served[:-1] in ([], ["cpu:gloo"])
        for device in ("cpu", ddp.device) if "cpu:gloo" in served else (ddp.device,):
            ones = torch.ones(3, device=device)
            dist.all_reduce(ones)
            assert ones.tolist() == [1] * 3
        if "cpu:gloo" not in served:
            with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
                dist.all_reduce(torch.ones(3))
