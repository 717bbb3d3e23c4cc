"""A training of 1,000 small parameters in parts (FSDP2) or as copies (DDP), for as many steps as it is told."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PARTS, LAYERS = 10, 50


def main(way: str, steps: int) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: nn.Module = nn.Sequential(*[nn.Sequential(*[nn.Linear(4, 4) for _ in range(LAYERS)]) for _ in range(PARTS)])
    if way == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for part in model:  # type: ignore[attr-defined]
            fully_shard(part)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        loss = model(torch.randn(2, 4, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
