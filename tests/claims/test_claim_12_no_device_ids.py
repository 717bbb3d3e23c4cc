"""Claim 12 (S0): a module on several devices takes no device_ids and no output_device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from ddpcheck import assert_device_placement, simulated_devices
from fixtures import s0_basic, s0_model_parallel

REFUSED = "device_ids and output_device arguments only work with single-device"

Devices = tuple[torch.device, torch.device]


def two_of_its_own(rank: int) -> Devices:
    torch.cuda.set_device(2 * rank)
    return torch.device("cuda", 2 * rank), torch.device("cuda", 2 * rank + 1)


def is_refused(devices: Devices, told: dict[str, Any]) -> None:
    """DDP's own error, on every rank alike, and before it has spoken to another."""
    with pytest.raises(ValueError, match=REFUSED):
        DistributedDataParallel(s0_model_parallel.TwoDevices(*devices), **told)


def trains(rank: int, devices: Devices) -> None:
    """Steps through both devices: outputs on the second, every gradient with its parameter, replicas equal."""
    model = s0_model_parallel.train(rank, devices)
    assert (model.device_ids, model.output_device) == (None, None)
    inputs, targets = s0_basic.make_batch(rank)
    outputs = model(inputs)
    assert outputs.device == devices[1]
    nn.functional.mse_loss(outputs, targets.to(devices[1])).backward()
    assert [str(p.grad.device) for p in model.parameters() if p.grad is not None] == [
        str(p.device) for p in model.parameters()
    ]
    ddpcheck.assert_gradients_identical(model)
    ddpcheck.assert_parameters_identical(model)
    assert_device_placement(model, inputs=inputs, outputs=outputs, targets=targets.to(devices[1]), devices_per_rank=2)


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("told", ["device_ids", "output_device", "both"])
def test_device_ids_are_refused(ddp, told):
    """Simulated: either argument is refused for a module on two devices."""
    with simulated_devices(8):
        first, second = two_of_its_own(ddp.rank)
        said = {"device_ids": [first.index], "output_device": second.index}
        is_refused((first, second), said if told == "both" else {told: said[told]})


@pytest.mark.ddp(world_size=2)
def test_a_module_on_one_device_takes_them(ddp):
    """Simulated: the twin on one device is wrapped with both, and has its inputs moved there."""
    with simulated_devices(8):
        first, _ = two_of_its_own(ddp.rank)
        model = DistributedDataParallel(
            s0_model_parallel.TwoDevices(first, first), device_ids=[first.index], output_device=first.index
        )
        assert model(s0_basic.make_batch(ddp.rank)[0]).device == first
        assert_device_placement(model, devices_per_rank=2)


@pytest.mark.ddp(world_size=[2, 4])
def test_without_them_it_trains(ddp):
    """Simulated: with neither given, the document's program trains on two devices in each rank."""
    with simulated_devices(8):
        trains(ddp.rank, two_of_its_own(ddp.rank))


@pytest.mark.ddp(world_size=2)
def test_the_steps_are_those_of_the_cpu(ddp):
    """Simulated: after the same steps the parameters are those of the program on the CPU, to the bit."""
    cpu = torch.device("cpu")
    expected = s0_model_parallel.train(ddp.rank, (cpu, cpu)).module.state_dict()
    with simulated_devices(4):
        found = s0_model_parallel.train(ddp.rank, two_of_its_own(ddp.rank)).module.state_dict()
        found = {name: tensor.cpu() for name, tensor in found.items()}
    torch.testing.assert_close(found, dict(expected), rtol=0, atol=0)


@pytest.mark.gpu(4)
@pytest.mark.ddp(world_size=2, device="cuda")
def test_on_gpus(ddp):
    """The same where two ranks have four GPUs: refused with device_ids, and trained without."""
    devices = two_of_its_own(ddp.rank)
    is_refused(devices, {"device_ids": [devices[0].index]})
    trains(ddp.rank, devices)
