"""The forms of an optimizer that GPUs have, with a scaler that tells them of an overflow on the device.

Needs one GPU and NCCL 2.30 or newer, or two GPUs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.watched_scripts import watch

FORMS = {
    "fused": "fused=True",
    "foreach": "foreach=True",
    "capturable": "foreach=True, capturable=True",
    "fused-capturable": "fused=True, capturable=True",
    "one-by-one": "foreach=False",
}

BODY = """
model = DistributedDataParallel(net, device_ids=[device.index])
rate = 0.02 if fault and rank == 1 else 0.01
optimizer = torch.optim.AdamW(model.parameters(), lr=rate, {form})
scaler = torch.amp.GradScaler("cuda", init_scale=512.0)
for n in range(6):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.randn(4, 8).to(device)).square().mean()
    if n == 2 and rank == 0:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
assert scaler.get_scale() == 256.0, scaler.get_scale()
"""


@pytest.mark.gpu(real="the arithmetic of autocast, and a scaler's kernels")
@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_step_that_an_overflow_skips(tmp_path: Path, form: str) -> None:
    """Rank 0 overflows in one step, all skip it, whether the optimizer asks the host or the device: all holds."""
    ran = watch(tmp_path, BODY.format(form=FORMS[form]), "nccl")
    assert (ran.code, ran.document["internal"], ran.document["findings"]) == (0, [], []), ran.printed
    for check in ("gradient-sync", "parameter-sync", "optimizer-sync"):
        assert ran.document["checks"][check]["status"] == "held", ran.document["checks"][check]


@pytest.mark.gpu(real="the arithmetic of autocast, and a scaler's kernels")
@pytest.mark.parametrize("form", sorted(FORMS))
def test_another_rate_on_one_rank(tmp_path: Path, form: str) -> None:
    """The same with a fault in it is told by its check."""
    ran = watch(tmp_path, BODY.format(form=FORMS[form]), "nccl", False, "--fault")
    errors = {finding["check"] for finding in ran.document["findings"] if finding["severity"] == "error"}
    assert ran.code == 1, ran.printed
    assert "optimizer-sync" in errors, ran.printed
    assert errors <= {"optimizer-sync", "parameter-sync"}, ran.printed
