"""Checkpoints and devices: where a load puts its tensors, and what is at risk on the CPU."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from fixtures import s0_basic


def saved_from_the_first(model: nn.Module, path: Path) -> None:
    """Rank 0 saves, from its own device, and all wait."""
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict()}, path)
    dist.barrier()


@pytest.mark.ddp(world_size=[2, 4])
def test_a_load_with_map_location(ddp):
    """Tensors that go to the rank's own device, or to the CPU, are where they belong."""
    with ddpcheck.simulated_devices(4):
        model = s0_basic.build_model(seed=0).to(f"cuda:{ddp.rank}")
        path = ddp.tmp_path / "model.pt"
        saved_from_the_first(model, path)
        for place in (f"cuda:{ddp.rank}", "cpu"):
            ddpcheck.assert_map_location(
                lambda p=place: model.load_state_dict(torch.load(path, map_location=p, weights_only=True)["model"]),
                model,
            )


@pytest.mark.ddp(world_size=[2, 4])
def test_a_load_without(ddp):
    """Tensors go back to the device that saved them: told on every other rank, though the model takes copies."""
    with ddpcheck.simulated_devices(4):
        model = s0_basic.build_model(seed=0).to(f"cuda:{ddp.rank}")
        path = ddp.tmp_path / "model.pt"
        saved_from_the_first(model, path)
        with pytest.raises(ddpcheck.Violation) as caught:
            ddpcheck.assert_map_location(
                lambda: model.load_state_dict(torch.load(path, weights_only=True)["model"]), model
            )
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-map-location"
    assert finding.ranks == tuple(range(1, ddp.world_size))
    assert "tensors on cuda:0 after torch.load with no map_location" in finding.found


@pytest.mark.ddp(world_size=2)
def test_a_load_that_puts_its_own_tensors_in_place(ddp):
    """With assign=True the model itself is on the device that saved."""
    with ddpcheck.simulated_devices(2):
        model = s0_basic.build_model(seed=0).to(f"cuda:{ddp.rank}")
        path = ddp.tmp_path / "model.pt"
        saved_from_the_first(model, path)
        state = torch.load(path, map_location="cuda:0", weights_only=True)["model"]  # before it is watched
        with pytest.raises(ddpcheck.Violation) as caught:
            ddpcheck.assert_map_location(lambda: model.load_state_dict(state, assign=True), model)
    (finding,) = caught.value.findings
    assert finding.ranks == (1,)
    assert "hidden.weight on cuda:0 on rank 1" in finding.found


@pytest.mark.ddp(world_size=2)
def test_on_the_cpu_it_is_at_risk(ddp):
    """On the CPU a load without map_location is right by luck: a warning, and none with it."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = ddp.tmp_path / "model.pt"
    saved_from_the_first(model, path)
    with pytest.warns(ddpcheck.AtRisk, match="checkpoint-map-location at risk"):
        ddpcheck.assert_map_location(lambda: model.load_state_dict(torch.load(path, weights_only=True)["model"]), model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ddpcheck.assert_map_location(
            lambda: model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["model"]), model
        )


class TwoDevices(nn.Module):
    """Its first layer on one device, and its second on the next."""

    def __init__(self, first: torch.device | str, second: torch.device | str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5).to(first), nn.Linear(5, 1).to(second)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(inputs.to(self.first.weight.device)))
        return self.second(hidden.to(self.second.weight.device))


def build(wrap: Any) -> dict[str, Any]:
    """A training on two devices of this rank's own."""
    rank = dist.get_rank()
    module = TwoDevices(f"cuda:{2 * rank}", f"cuda:{2 * rank + 1}")
    return {"model": module, "optimizer": torch.optim.AdamW(module.parameters())}


def in_ddp(training: dict[str, Any]) -> dict[str, Any]:
    return {**training, "wrapper": DistributedDataParallel(training["model"])}


def step(training: dict[str, Any]) -> None:
    training["optimizer"].zero_grad()
    training.get("wrapper", training["model"])(torch.randn(3, 6)).sum().backward()
    training["optimizer"].step()


def save(training: dict[str, Any], path: Path) -> None:
    streams: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(streams, torch.get_rng_state())
    state = {
        "model": training["model"].state_dict(),
        "optimizer": training["optimizer"].state_dict(),
        "streams": streams,
    }
    if dist.get_rank() == 0:
        draft = path.with_suffix(".draft")
        torch.save(state, draft)
        draft.replace(path)
    dist.barrier()


def load(training: dict[str, Any], path: Path) -> None:
    state = torch.load(path, map_location="cpu", weights_only=True)
    training["model"].load_state_dict(state["model"])
    training["optimizer"].load_state_dict(state["optimizer"])
    torch.set_rng_state(state["streams"][dist.get_rank()])


@pytest.mark.ddp(world_size=2)
@pytest.mark.long
def test_a_training_on_two_devices_resumes(ddp):
    """Saved from devices 0 and 1 and loaded onto 2 and 3 it goes on to the bit, moments beside their parameters."""
    with ddpcheck.simulated_devices(4):
        ddpcheck.assert_checkpoint_resumable(
            save, load, build=lambda wrap: in_ddp(build(wrap)), step=step, kills=6, bare=False
        )


@pytest.mark.ddp(world_size=2)
def test_a_training_on_two_devices_is_loaded_onto_anothers(ddp):
    """Without map_location rank 1 loads onto rank 0's two devices."""

    def astray(training: dict[str, Any], path: Path) -> None:
        state = torch.load(path, weights_only=True)
        training["model"].load_state_dict(state["model"])
        training["optimizer"].load_state_dict(state["optimizer"])
        torch.set_rng_state(state["streams"][dist.get_rank()])

    with ddpcheck.simulated_devices(4), pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_checkpoint_resumable(
            save, astray, build=lambda wrap: in_ddp(build(wrap)), step=step, kills=0, bare=False
        )
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-map-location"
    assert finding.ranks == (1,)
    assert "cuda:0, cuda:1" in finding.found


@pytest.mark.ddp(world_size=2)
def test_moments_and_steps_on_either_device(ddp):
    """AdamW counts its steps on the CPU; a load to the rank's GPU puts the count there, and it is the same count."""

    def to_the_gpu(training: dict[str, Any], path: Path) -> None:
        state = torch.load(path, map_location=f"cuda:{2 * dist.get_rank()}", weights_only=True)
        training["model"].load_state_dict(state["model"])
        training["optimizer"].load_state_dict(state["optimizer"])
        torch.set_rng_state(state["streams"][dist.get_rank()].cpu())

    with ddpcheck.simulated_devices(4):
        ddpcheck.assert_resume_equivalent(save, to_the_gpu, build=lambda wrap: in_ddp(build(wrap)), step=step)
