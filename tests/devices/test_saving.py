"""Checkpoints of tensors on simulated devices: torch writes and reads them itself, tags and all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ddpcheck

MAPS: dict[str, tuple[Any, tuple[str, str]]] = {
    "none": (None, ("cuda:0", "cuda:1")),
    "name": ("cpu", ("cpu", "cpu")),
    "device": (torch.device("cuda", 3), ("cuda:3", "cuda:3")),
    "current": ("cuda", ("cuda:2", "cuda:2")),
    "table": ({"cuda:0": "cuda:2"}, ("cuda:2", "cuda:1")),
    "table to cpu": ({"cuda:0": "cuda:1", "cuda:1": "cpu"}, ("cuda:1", "cpu")),
    "function": (lambda storage, place: storage.cuda(3), ("cuda:3", "cuda:3")),
    "function of the place": (lambda storage, place: storage if place == "cuda:1" else None, ("cuda:0", "cpu")),
}


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", MAPS)
def test_map_location(tmp_path: Path, name: str, zipped: bool, weights_only: bool) -> None:
    """Every form of it brings each tensor to its device, values untouched, optimizer state too."""
    location, places = MAPS[name]
    path = tmp_path / "checkpoint.pt"
    with ddpcheck.simulated_devices(4):
        first, second = nn.Linear(2, 3).to("cuda:0"), nn.Linear(3, 1).to("cuda:1")
        state = {"first": first.state_dict(), "second": second.state_dict(), "epoch": 3}
        torch.save(state, path, _use_new_zipfile_serialization=zipped)
        torch.cuda.set_device(2)
        loaded = torch.load(path, map_location=location, weights_only=weights_only)
        assert (str(loaded["first"]["weight"].device), str(loaded["second"]["bias"].device)) == places
        assert torch.equal(loaded["first"]["weight"].cpu(), first.weight.cpu())
        first.load_state_dict(loaded["first"])
        assert str(first.weight.device) == "cuda:0"


def test_tags_are_in_the_file(tmp_path: Path) -> None:
    """Outside of the simulation the file needs a GPU, in torch's own words, or a map_location."""
    path = tmp_path / "checkpoint.pt"
    with ddpcheck.simulated_devices(2):
        torch.save({"x": torch.arange(3.0, device="cuda:1"), "y": torch.ones(1)}, path)
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    assert loaded["x"].tolist() == [0.0, 1.0, 2.0]
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device but"):
            torch.load(path, weights_only=False)  # older versions have this as the cause of another error otherwise


def test_device_that_does_not_exist(tmp_path: Path) -> None:
    """A file of a machine with more devices, and a map to one too many: torch's own error."""
    path = tmp_path / "checkpoint.pt"
    with ddpcheck.simulated_devices(8):
        torch.save(torch.zeros(1, device="cuda:5"), path)
    with ddpcheck.simulated_devices(2):
        for location in (None, "cuda:5"):
            with pytest.raises(RuntimeError, match=r"CUDA device 5 but torch\.cuda\.device_count\(\) is 2"):
                torch.load(path, map_location=location, weights_only=False)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_optimizer_state_follows_its_parameters(tmp_path: Path, kind: Callable[..., Any]) -> None:
    """A state that was loaded to the CPU is where the parameters are, once the optimizer has it."""
    with ddpcheck.simulated_devices(2):
        layer = nn.Linear(2, 1).to("cuda:1")
        options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        optimizer = kind(layer.parameters(), lr=0.1, **options)
        layer(torch.ones(1, 2, device="cuda:1")).sum().backward()
        optimizer.step()
        torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
        again = kind(layer.parameters(), lr=0.1, **options)
        again.load_state_dict(torch.load(tmp_path / "optimizer.pt", map_location="cpu", weights_only=True))
        moments = [value for state in again.state.values() for key, value in state.items() if key != "step"]
        assert moments
        assert {str(each.device) for each in moments} == {"cuda:1"}
        again.step()
