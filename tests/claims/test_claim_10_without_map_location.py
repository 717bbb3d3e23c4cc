"""Claim 10 (S0, S2): without map_location, every rank's load lands on the device that saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from ddpcheck import assert_device_placement, simulated_devices
from fixtures import s0_basic
from tests.claims.findings import only_finding

MAPPINGS: dict[str, Callable[[int], Any]] = {
    "device": lambda own: torch.device("cuda", own),
    "text": lambda own: f"cuda:{own}",
    "dictionary": lambda own: {"cuda:0": f"cuda:{own}"},
    "function": lambda own: lambda storage, location: storage.cuda(own),
}
"""The document's own way to say it is the dictionary."""


def save_on_the_first(rank: int, path: Path) -> None:
    """Rank 0 saves its model from its device, cuda:0, and all wait for it."""
    if rank == 0:
        torch.save(s0_basic.build_model(seed=0).to("cuda:0").state_dict(), path)
    dist.barrier()


def load(path: Path, **how: Any) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True, **how)  # type: ignore[no-any-return]


def devices_of(state: dict[str, torch.Tensor]) -> set[str]:
    return {str(tensor.device) for tensor in state.values()}


def lands_on_the_device_that_saved(rank: int, path: Path) -> None:
    """The claim itself: on every rank the loaded tensors are on cuda:0, and a model made of them is, too."""
    torch.cuda.set_device(rank)
    save_on_the_first(rank, path)
    state = load(path)
    assert devices_of(state) == {"cuda:0"}
    model = s0_basic.build_model(seed=1).cuda()
    with pytest.raises(ddpcheck.Violation) as caught:
        assert_device_placement(model, devices_per_rank=1)
    finding = only_finding(caught)
    assert "map_location" in finding.cause
    assert "; cuda:0 is rank 0's" in finding.found
    others = tuple(range(1, dist.get_world_size()))
    assert finding.ranks == others
    model.load_state_dict(state, assign=True)
    with pytest.raises(ddpcheck.Violation) as caught:
        assert_device_placement(model, devices_per_rank=1)
    finding = only_finding(caught)
    assert (finding.ranks, finding.count) == (others, 4)
    assert "map_location" in finding.cause


def stays_with_the_rank(rank: int, path: Path, mapping: Callable[[int], Any]) -> None:
    """With map_location the loaded tensors are on the rank's own device, equal to what was saved."""
    torch.cuda.set_device(rank)
    save_on_the_first(rank, path)
    state = load(path, map_location=mapping(rank))
    assert devices_of(state) == {f"cuda:{rank}"}
    model = s0_basic.build_model(seed=1).cuda()
    model.load_state_dict(state, assign=True)
    assert_device_placement(model, devices_per_rank=1)
    torch.testing.assert_close(
        {name: tensor.cpu() for name, tensor in model.state_dict().items()},
        dict(s0_basic.build_model(seed=0).state_dict()),
        rtol=0,
        atol=0,
    )


@pytest.mark.ddp(world_size=[2, 4])
def test_every_load_lands_on_the_first_device(ddp):
    """Simulated: all ranks hold tensors on rank 0's device, and are told so; loaded into place, the model is there."""
    with simulated_devices(4):
        lands_on_the_device_that_saved(ddp.rank, ddp.tmp_path / "model.pt")


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
def test_map_location_keeps_a_rank_on_its_device(ddp, mapping):
    """Simulated: each form of map_location leaves nothing on another rank's device."""
    with simulated_devices(4):
        stays_with_the_rank(ddp.rank, ddp.tmp_path / "model.pt", mapping)


@pytest.mark.ddp(world_size=2)
def test_a_copy_hides_where_the_load_went(ddp):
    """load_state_dict copies: the model stays in place, and the load has used rank 0's device all the same."""
    with simulated_devices(2):
        torch.cuda.set_device(ddp.rank)
        save_on_the_first(ddp.rank, ddp.tmp_path / "model.pt")
        model = s0_basic.build_model(seed=1).cuda()
        state = load(ddp.tmp_path / "model.pt")
        model.load_state_dict(state)
        with pytest.raises(ddpcheck.Violation) as caught:
            assert_device_placement(model, devices_per_rank=1)
        assert "4 tensors" in only_finding(caught).found
        state.clear()
        assert_device_placement(model, devices_per_rank=1)


@pytest.mark.gpu(2)
@pytest.mark.ddp(world_size=2, device="cuda")
def test_every_load_lands_on_the_first_gpu(ddp):
    """The same on GPUs."""
    lands_on_the_device_that_saved(ddp.rank, ddp.tmp_path / "model.pt")


@pytest.mark.gpu(2)
@pytest.mark.ddp(world_size=2, device="cuda")
@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
def test_map_location_keeps_a_rank_on_its_gpu(ddp, mapping):
    """The same on GPUs."""
    stays_with_the_rank(ddp.rank, ddp.tmp_path / "model.pt", mapping)
