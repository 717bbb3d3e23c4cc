"""FSDP2 and DTensor on devices under ``ddpcheck run``: nothing is gathered, nothing waited for, nothing claimed.

Needs one GPU and NCCL 2.30 or newer, or two GPUs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed.fsdp

from tests.gpu.watched_scripts import alone, said, watch

COMPARED = ("initial-broadcast", "gradient-sync", "parameter-sync")
"""Checks that compare elements of copies: there are none under FSDP2, and one bias in the tensor-parallel model."""

STEPS = """
def calls():
    return dist.distributed_c10d._get_default_group()._get_sequence_number_for_group()

optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
x = torch.randn(4, 16, generator=torch.Generator().manual_seed(rank)).to(device)
for n in range(6):
    # Whoever waits for the device in these steps gets an error.
    torch.cuda.set_sync_debug_mode("error" if n >= 2 else "default")
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
torch.cuda.set_sync_debug_mode("default")
torch.cuda.synchronize()
if rank == 0: print(f"calls={calls()}", flush=True)
"""

FSDP2 = """
from torch.distributed.fsdp import fully_shard
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)).to(device)
for layer in (model[0], model[2]): fully_shard(layer)
fully_shard(model)
"""

DTENSOR = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)).to(device)
mesh = init_device_mesh("cuda", (2,))
model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
"""


@pytest.mark.gpu(real="FSDP2 and DTensor with their streams, over NCCL")
@pytest.mark.parametrize("body", [FSDP2, DTENSOR], ids=["fsdp2", "dtensor"])
def test_shards_are_left_alone(tmp_path: Path, body: str) -> None:
    """As many collectives as under torchrun, no wait in a step, no finding, and no elements of shards that are held.

    Learning rates are compared of shards, too: those of one model are stepped alike.
    """
    if body is FSDP2 and not hasattr(torch.distributed.fsdp, "fully_shard"):
        pytest.skip("FSDP2 has its public name from torch 2.6 on")
    without = said(alone(tmp_path, body + STEPS, "nccl"), "calls")
    ran = watch(tmp_path, body + STEPS, "nccl")
    document = ran.document
    assert ran.code in (0, 3), ran.printed
    assert (document["findings"], document["internal"]) == ([], []), ran.printed
    assert said(ran.printed, "calls") == without
    statuses = {document["checks"][check]["status"] for check in COMPARED}
    assert statuses == {"not-checked"} if body is FSDP2 else statuses <= {"held", "not-checked"}
    assert document["checks"]["optimizer-sync"]["status"] == "held" or body is DTENSOR
    assert "were not compared" in " ".join(ran.printed.split()), ran.printed
