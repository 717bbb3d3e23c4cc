"""A GPU without memory for a look: the look is left out, and the program has all that it had.

Needs one GPU and NCCL 2.30 or newer, or two GPUs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.watched_scripts import alone, said, watch

BODY = """
torch.manual_seed(1)
large = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024)).to(device)
model = DistributedDataParallel(large, device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
x = torch.randn(4, 1024, generator=torch.Generator().manual_seed(rank)).to(device)

def filled():
    # All that there is, in pieces of any size, so that no look finds a place between them.
    held, size = [], 1 << 26
    while size >= 512:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device=device))
        except torch.cuda.OutOfMemoryError:
            size //= 2
    return held

def step(full):
    optimizer.zero_grad(set_to_none=False)
    model(x).square().mean().backward()
    held = filled() if full else []
    optimizer.step()
    del held

step(False)
torch.cuda.synchronize()
used = torch.cuda.memory_reserved(device) + (64 << 20)
torch.cuda.set_per_process_memory_fraction(used / torch.cuda.get_device_properties(device).total_memory, device)
for n in range(6): step(True)
torch.cuda.synchronize()
total = sum(float(p.detach().double().sum()) for p in large.parameters())
if rank == 0: print(f"after={total!r}", flush=True)
if rank == 0: print(f"memory={torch.cuda.memory_allocated(device)}", flush=True)
"""


LITTLE = 256 * 1024
"""Bytes of the numbers that a look has found, as long as nobody has read them."""


@pytest.mark.gpu(real="the memory of a GPU")
def test_a_look_that_has_no_memory(tmp_path: Path) -> None:
    """The program ends with the weights and the memory that it has without us; the report says what was left out."""
    without = alone(tmp_path, BODY, "nccl")
    ran = watch(tmp_path, BODY, "nccl")
    assert said(ran.printed, "after") == said(without, "after"), ran.printed
    (more,), (before,) = said(ran.printed, "memory"), said(without, "memory")
    assert 0 <= int(more) - int(before) < LITTLE, (more, before)
    assert (ran.code, ran.document["internal"], ran.document["findings"]) == (0, [], []), ran.printed
    assert "Memory did not suffice for every look" in " ".join(ran.document["notes"])
