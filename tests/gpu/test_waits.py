"""Steps in which nobody may wait for the device: torch itself raises an error where somebody does.

Needs one GPU and NCCL 2.30 or newer, or two GPUs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.watched_scripts import alone, said, watch

BODY = """
model, optimizer = setup(torch.optim.SGD, gradient_as_bucket_view=True)
x = torch.randn(4, 8).to(device)
for n in range(20):
    # In its first steps DDP itself waits: it orders its buckets anew.
    torch.cuda.set_sync_debug_mode("error" if n >= 3 else "default")
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
torch.cuda.set_sync_debug_mode("default")
torch.cuda.synchronize()
if rank == 0: print("done=yes", flush=True)
"""


@pytest.mark.gpu(real="waits for a device")
def test_no_step_waits(tmp_path: Path) -> None:
    """Neither one that is not looked at, nor, since what a look finds is read later, one that is."""
    assert said(alone(tmp_path, BODY, "nccl"), "done") == ["yes"]
    ran = watch(tmp_path, BODY, "nccl")
    assert said(ran.printed, "done") == ["yes"], ran.printed
    assert (ran.code, ran.document["internal"], ran.document["findings"]) == (0, [], []), ran.printed
    assert ran.document["checks"]["gradient-sync"]["checked"] > 3, ran.printed
