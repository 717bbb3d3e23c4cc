"""Small models for the tests on GPUs, and the oracle: one process on the whole batch."""

from __future__ import annotations

import torch
from torch import nn


def net() -> nn.Module:
    """A perceptron with a normalisation, so that it has buffers."""
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def plain_net() -> nn.Module:
    """The same without anything that depends on the batch as a whole."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def batch(rank: int, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """A rank's samples and labels, on the CPU."""
    own = torch.Generator().manual_seed(100 + rank)
    return torch.randn(size, 8, generator=own), torch.randint(0, 2, (size,), generator=own)


def oracle(world_size: int, device: torch.device) -> list[torch.Tensor]:
    """The gradients of one process on the batches of all ranks, by the order of the parameters."""
    torch.manual_seed(0)
    model = plain_net().to(device)
    parts = [batch(rank) for rank in range(world_size)]
    inputs = torch.cat([x for x, _ in parts]).to(device)
    labels = torch.cat([y for _, y in parts]).to(device)
    nn.functional.cross_entropy(model(inputs), labels).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]
