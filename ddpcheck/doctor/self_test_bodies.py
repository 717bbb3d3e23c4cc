"""The self-test: one step of DDP in two ranks is the step of one process on the whole batch.

It is collected like any test of a user's, and imports torch within its ranks
alone, so that collecting it takes no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ddpcheck

if TYPE_CHECKING:
    import torch

    from ddpcheck.ranks.current_rank import CurrentRank

SECONDS = 20.0
"""For the ranks of one test; on a healthy machine they need a tenth of a second."""

SECONDS_ON_GPUS = 60.0
"""A first context, and the first kernels that a driver has to load, may take long."""

RATE = 0.1
TOLERANCE = 1e-9
"""In double precision: what the order of additions can make of numbers around one."""


@pytest.mark.ddp(world_size=2, backend="gloo", device="cpu", timeout=SECONDS)
def test_gloo_on_cpu(ddp: CurrentRank) -> None:
    step_equals_oracle(ddp)


@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=SECONDS_ON_GPUS)
def test_gloo_on_cuda(ddp: CurrentRank) -> None:
    step_equals_oracle(ddp)


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=SECONDS_ON_GPUS)
def test_nccl_on_cuda(ddp: CurrentRank) -> None:
    step_equals_oracle(ddp)


def step_equals_oracle(ddp: CurrentRank) -> None:
    """Ranks begin from seeds of their own, with batches of their own; after the step all hold the oracle's model."""
    import torch

    model = ddp.wrap(net(seed=ddp.rank))
    ddpcheck.assert_initial_broadcast(model)
    step(model, batch(ddp.rank).to(ddp.device))
    oracle = net(seed=0)
    step(oracle, torch.cat([batch(rank) for rank in range(ddp.world_size)]))
    for (name, ours), wanted in zip(model.module.named_parameters(), oracle.parameters(), strict=True):
        gap = float((ours.detach().cpu() - wanted.detach()).abs().max())
        if not gap <= TOLERANCE:  # NaN is no agreement
            pytest.fail(
                f"{name} differs from that of one process on the whole batch by up to {gap:.3g} after one step",
                pytrace=False,
            )
    ddpcheck.assert_parameters_identical(model)


def net(seed: int) -> torch.nn.Module:
    import torch

    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()


def batch(rank: int) -> torch.Tensor:
    import torch

    return torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(100 + rank))


def step(model: torch.nn.Module, inputs: torch.Tensor) -> None:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    model(inputs).square().mean().backward()
    optimizer.step()
