"""Checkpoints and the devices of their tensors: every rank's load stays on the rank's own GPU.

Needs two GPUs for a load that lands on another rank's; the rest needs one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddpcheck
from tests.gpu.nets import plain_net


def met(ddp: Any) -> None:
    """Wait for the other ranks, and for the GPU."""
    dist.all_reduce(torch.zeros(1, device=ddp.device))
    torch.cuda.synchronize()


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=180)
@pytest.mark.gpu(2)
def test_without_map_location_a_load_lands_on_the_device_that_saved(ddp: Any) -> None:
    """Rank 0's GPU has both ranks' tensors; with map_location each rank has its own. `device-placement` sees it."""
    model = ddp.wrap(plain_net())
    path = ddp.tmp_path / "model.pt"
    if ddp.rank == 0:
        torch.save(model.module.state_dict(), path)
    met(ddp)
    careless = torch.load(path, weights_only=True)
    assert {str(t.device) for t in careless.values()} == {"cuda:0"}
    mapped = torch.load(path, weights_only=True, map_location=ddp.device)
    assert {t.device for t in mapped.values()} == {ddp.device}
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_map_location(lambda: torch.load(path, weights_only=True), model)
    assert caught.value.findings[0].check == "checkpoint-map-location"
    ddpcheck.assert_map_location(
        lambda: model.module.load_state_dict(torch.load(path, weights_only=True, map_location=ddp.device)), model
    )


@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=180)
def test_a_checkpoint_of_another_machine(ddp: Any) -> None:
    """A tensor of a GPU that is not here is refused by torch, and loads with map_location."""
    path = ddp.tmp_path / f"{ddp.rank}.pt"
    torch.save({"weight": torch.arange(3.0, device=ddp.device)}, path)
    here = f"cuda:{ddp.device.index}"
    elsewhere = path.read_bytes().replace(here.encode(), b"cuda:9")
    path.write_bytes(elsewhere)
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on CUDA device 9"):
        _load(path)
    assert _load(path, map_location=ddp.device)["weight"].tolist() == [0, 1, 2]
    assert str(_load(path, map_location="cpu")["weight"].device) == "cpu"
    assert _load(path, map_location={"cuda:9": here})["weight"].device == ddp.device


def _load(path: Path, **how: Any) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True, **how)


class Training:
    """A model, its optimizer, and the steps taken."""

    def __init__(self, wrap: Any) -> None:
        self.model = wrap(plain_net())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def state(self) -> dict[str, Any]:
        return {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def step(self, seed: int, device: torch.device) -> None:
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)).to(device)
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=180)
@pytest.mark.parametrize("moments", [True, False])
def test_a_resumed_training_goes_on_as_it_would_have(ddp: Any, moments: bool) -> None:
    """Save, rebuild, load and two more steps equal never having stopped; without the moments they do not."""
    torch.manual_seed(ddp.rank)
    path = ddp.tmp_path / "all.pt"
    first = Training(ddp.wrap)
    for step in range(3):
        first.step(10 * step + ddp.rank, ddp.device)
    if ddp.rank == 0:
        torch.save(first.state(), path)
    met(ddp)
    saved = torch.load(path, weights_only=True, map_location=ddp.device)
    second = Training(ddp.wrap)
    second.model.module.load_state_dict(saved["model"])
    if moments:
        second.optimizer.load_state_dict(saved["optimizer"])
    for step in range(3, 5):
        first.step(10 * step + ddp.rank, ddp.device)
        second.step(10 * step + ddp.rank, ddp.device)
    ddpcheck.assert_parameters_identical(second.model)
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs) is moments
    for state in second.optimizer.state.values():
        assert state["exp_avg"].device == ddp.device


@pytest.mark.ddp(world_size=2, backend="nccl", device="cuda", timeout=180)
def test_a_load_on_one_rank_after_the_wrap(ddp: Any) -> None:
    """DDP does not spread it: the ranks part, and are told so; loaded on every rank they agree."""
    model = ddp.wrap(plain_net())
    other = {name: t + 1 for name, t in model.module.state_dict().items()}
    if ddp.rank == 0:
        model.module.load_state_dict(other)
    with pytest.raises(ddpcheck.Violation):
        ddpcheck.assert_replicas_identical(model)
    model.module.load_state_dict(other)
    ddpcheck.assert_replicas_identical(model)


@pytest.mark.ddp(world_size=2, backend="gloo", device="cuda", timeout=180)
def test_a_pinned_batch(ddp: Any, simulated: bool) -> None:
    """Copies that do not block, from pinned memory, are what the model sees when it computes."""
    model = ddp.wrap(nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        model.module.weight.copy_(torch.eye(4))
    for step in range(20):
        x = torch.full((64, 4), float(step))
        x = x if simulated else x.pin_memory()
        assert torch.equal(model(x.to(ddp.device, non_blocking=True)).cpu(), torch.full((64, 4), float(step)))
