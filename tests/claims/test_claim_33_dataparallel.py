"""Claim 33 (S0, S1): DataParallel gives the same gradients, in one process.

The oracle for both is one process on the whole batch, without either wrapper.
DataParallel works on GPUs alone; here on simulated ones, where a batch is split,
a replica runs on each part, and gradients come together, all on the CPU.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ddpcheck
from fixtures import s0_basic


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name.removeprefix("module."): p.grad.cpu().clone() for name, p in model.named_parameters()}


def whole_batch(world_size: int) -> s0_basic.Batch:
    """The batches of all ranks as one."""
    inputs, targets = zip(*[s0_basic.make_batch(rank) for rank in range(world_size)], strict=True)
    return torch.cat(inputs), torch.cat(targets)


def alone(batch: s0_basic.Batch) -> dict[str, Tensor]:
    model = s0_basic.build_model(seed=0)
    s0_basic.loss_of(model, batch).backward()
    return gradients(model)


def in_one_process(batch: s0_basic.Batch, devices: int, net: nn.Module | None = None) -> dict[str, Tensor]:
    """The gradients of DataParallel over so many simulated devices."""
    with ddpcheck.simulated_devices(devices):
        model = nn.DataParallel(net or s0_basic.build_model(seed=0))
        model.to("cuda:0")
        outputs = model(batch[0].to("cuda:0"))
        assert outputs.device == torch.device("cuda:0")
        nn.functional.mse_loss(outputs, batch[1].to("cuda:0")).backward()
        return gradients(model)


@pytest.mark.ddp(world_size=[2, 4])
def test_both_give_the_gradient_of_one_process(ddp):
    """DDP on each rank's batch, and DataParallel on all of them in one process, agree with the plain model on all."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    s0_basic.loss_of(model, s0_basic.make_batch(ddp.rank)).backward()
    ddpcheck.assert_gradients_identical(model)

    batch = whole_batch(ddp.world_size)
    expected = alone(batch)
    torch.testing.assert_close(gradients(model), expected)
    torch.testing.assert_close(in_one_process(batch, ddp.world_size), expected)


class Forgetful(nn.Module):
    """A net whose replica on the second device keeps its gradient to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.net = s0_basic.build_model(seed=0)
        self.devices: list[int | None] = []

    def forward(self, x: Tensor) -> Tensor:
        self.devices.append(x.device.index)
        outputs: Tensor = self.net(x)
        return outputs.detach() if x.device.index == 1 else outputs


def test_replica_whose_gradient_is_lost_is_caught():
    """The fault: the gradient of DataParallel without its second replica's part is not that of the whole batch."""
    batch = whole_batch(2)
    net = Forgetful()

    found = {name.removeprefix("net."): value for name, value in in_one_process(batch, 2, net).items()}

    assert net.devices == [0, 1]  # a part of the batch for each of them
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(found, alone(batch))
    half = tuple(part[: len(part) // 2] for part in batch)
    torch.testing.assert_close(found, {name: value / 2 for name, value in alone(half).items()})
