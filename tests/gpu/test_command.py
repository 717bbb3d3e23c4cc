"""Scripts that train on GPUs under ``ddpcheck run``: each fault is told by its check, and its twin holds.

Needs one GPU; under NCCL, version 2.30 or newer or a GPU for each of two ranks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gpu.watched_scripts import command


class Case(NamedTuple):
    """A script, and the check that tells its fault."""

    check: str
    body: str
    too: frozenset[str] = frozenset()
    """What may be told beside that check, or name it among what it breaks: one cause has several signs."""
    real: str = ""
    """Why simulated devices will not do."""


CASES = {
    "a change after the wrap": Case(
        "initial-broadcast",
        """
        model, optimizer = setup()
        if fault and rank == 1:
            with torch.no_grad():
                net[0].weight.add_(1.0)
        for _ in range(3): step(model, optimizer)
        """,
        too=frozenset({"parameter-sync"}),
    ),
    "a forward that bypasses the wrapper": Case(
        "reducer-coverage",
        """
        model, optimizer = setup()
        for _ in range(3): step(model, optimizer, net if fault else model)
        """,
    ),
    "gradients that one rank clips": Case(
        "gradient-sync",
        """
        model, optimizer = setup()
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8).to(device)).square().mean().backward()
            if rank == 0 or not fault:
                nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
        """,
        too=frozenset({"parameter-sync"}),
    ),
    "parameters that one rank edits": Case(
        "parameter-sync",
        """
        model, optimizer = setup()
        for n in range(4):
            step(model, optimizer)
            if fault and rank == 1 and n == 1:
                with torch.no_grad():
                    net[3].bias.add_(1.0)
        """,
    ),
    "statistics that are not broadcast": Case(
        "buffer-sync",
        """
        model, optimizer = setup(broadcast_buffers=not fault)
        for _ in range(3): step(model, optimizer)
        model.eval()
        with torch.no_grad():
            total = model(torch.randn(4, 8).to(device)).sum()
        dist.all_reduce(total)
        """,
    ),
    "a rate that follows the local loss": Case(
        "optimizer-sync",
        """
        model, optimizer = setup(torch.optim.Adam, lr=0.01)
        for n in range(4):
            step(model, optimizer)
            if fault and rank == 1:
                optimizer.param_groups[0]["lr"] *= 0.5
        """,
        too=frozenset({"parameter-sync"}),
    ),
    "a scaler that differs": Case(
        "optimizer-sync",
        """
        model, optimizer = setup(lr=0.01)
        scaler = torch.amp.GradScaler("cuda", init_scale=256.0 if fault and rank == 1 else 512.0)
        for n in range(3):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.randn(4, 8).to(device)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
        too=frozenset({"gradient-sync", "parameter-sync"}),
        real="the arithmetic of autocast, and a scaler's kernels",
    ),
    "a rank a step short": Case(
        "collective-order",
        """
        model, optimizer = setup()
        for n in range(4 if fault and rank == 1 else 5):
            step(model, optimizer)  # STUCK
        torch.cuda.synchronize()
        """,
        too=frozenset({"no-hang", "batch-count", "rank-failure"}),
    ),
    "an error on one rank": Case(
        "rank-failure",
        """
        model, optimizer = setup()
        for n in range(3):
            step(model, optimizer)
            if fault and rank == 1 and n == 1:
                raise ValueError("a sample that cannot be read")
        """,
    ),
    "an error of a kernel": Case(
        "rank-failure",
        """
        model, optimizer = setup()
        for n in range(3):
            step(model, optimizer)
            labels = torch.tensor([99 if fault and rank == 1 and n == 1 else 1] * 4, device=device)
            torch.zeros(4, device=device)[labels]
            torch.cuda.synchronize()
        """,
        real="the error of a kernel, which is told later",
    ),
    "a rank out of memory": Case(
        "rank-failure",
        """
        model, optimizer = setup()
        step(model, optimizer)
        if fault and rank == 1:
            torch.empty(1 << 50, dtype=torch.uint8, device=device)
        step(model, optimizer)
        """,
        real="the memory of a GPU",
    ),
    "every rank takes the whole dataset": Case(
        "shard-partition",
        """
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
        model, optimizer = setup()
        dataset = TensorDataset(torch.arange(256.0).reshape(32, 8) / 256)
        sampler = None if fault else DistributedSampler(dataset)
        loader = DataLoader(dataset, batch_size=4, sampler=sampler, shuffle=fault or None)
        for epoch in range(2):
            if sampler is not None: sampler.set_epoch(epoch)
            for (x,) in loader:
                optimizer.zero_grad()
                model(x.to(device)).square().mean().backward()
                optimizer.step()
        """,
    ),
}


def cases() -> list[Any]:
    return [
        pytest.param(case, id=name, marks=[pytest.mark.gpu(real=case.real)] if case.real else [])
        for name, case in CASES.items()
    ]


@pytest.fixture(params=["nccl", "gloo"])
def backend(request: pytest.FixtureRequest, simulated: bool) -> str:
    """Both; on simulated devices there is gloo alone."""
    if simulated and request.param == "nccl":
        pytest.skip("it runs on real GPUs only, and these are simulated: NCCL")
    return str(request.param)


@pytest.mark.gpu
@pytest.mark.parametrize("case", cases())
def test_a_fault_is_told(tmp_path: Path, case: Case, backend: str, simulated: bool) -> None:
    """Exit 1, and its check broken, by itself or with what the same cause breaks; a hang has rank and line."""
    code, document, printed = command(tmp_path, case.body, backend, simulated, "--fault")
    errors = [finding for finding in document["findings"] if finding["severity"] == "error"]
    assert code == 1, printed
    assert case.check in {check for finding in errors for check in (finding["check"], *finding["also"])}, printed
    assert {finding["check"] for finding in errors} <= {case.check} | case.too, printed
    if case.check in ("collective-order", "rank-failure"):
        assert 1 in {rank for finding in document["findings"] for rank in finding["ranks"]}, printed
        assert any(finding["where"] for finding in document["findings"]), printed


@pytest.mark.gpu
@pytest.mark.parametrize("case", cases())
def test_its_twin_holds(tmp_path: Path, case: Case, backend: str, simulated: bool) -> None:
    """The same script without the fault: exit 0, nothing told, and the check was checked."""
    code, document, printed = command(tmp_path, case.body, backend, simulated)
    assert document["findings"] == [], printed
    assert code == 0, printed
    assert document["verdict"] == "held"
    assert document["checks"]["gradient-sync"]["checked"] > 0
    if case.check != "rank-failure":
        assert document["checks"][case.check]["status"] == "held", document["checks"][case.check]


TRAIN = CASES["a forward that bypasses the wrapper"].body


@pytest.mark.gpu
def test_ranks_that_share_a_gpu_are_told(tmp_path: Path, simulated: bool) -> None:
    """By what names the GPU itself: two ranks on it are a finding, unless the check is left out."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", first)
        code, document, printed = command(tmp_path, TRAIN, "gloo", simulated, skip="", gpus=1)
    assert code == 1, printed
    assert [finding["check"] for finding in document["findings"]] == ["device-placement"]
    assert document["findings"][0]["ranks"] == [0, 1]


@pytest.mark.gpu(2)
def test_ranks_on_gpus_of_their_own_are_not(tmp_path: Path, simulated: bool) -> None:
    """The twin, where there are two."""
    code, document, printed = command(tmp_path, TRAIN, "gloo" if simulated else "nccl", simulated, skip="")
    assert code == 0, printed
    assert document["checks"]["device-placement"]["status"] == "held"


@pytest.mark.gpu(2)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_load_onto_another_ranks_gpu(tmp_path: Path, mapped: bool, simulated: bool) -> None:
    """A checkpoint of rank 0 that is loaded without map_location lands on rank 0's GPU, on every rank."""
    body = f"""
    model, optimizer = setup()
    step(model, optimizer)
    if rank == 0:
        torch.save(net.state_dict(), "model.tmp")
        os.replace("model.tmp", "model.pt")
    total = torch.zeros(1, device=device)
    dist.all_reduce(total)
    torch.cuda.synchronize()
    where = {{"map_location": device}} if {mapped} else {{}}
    net.load_state_dict(torch.load("model.pt", weights_only=True, **where))
    step(model, optimizer)
    """
    _, document, printed = command(tmp_path, body, "gloo" if simulated else "nccl", simulated)
    found = [finding["check"] for finding in document["findings"] if finding["severity"] == "error"]
    assert found == ([] if mapped else ["checkpoint-map-location"]), printed
