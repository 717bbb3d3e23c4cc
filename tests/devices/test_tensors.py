"""Where a tensor is on simulated devices, and what it says of that."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import ddpcheck

MADE: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "factory": (lambda: torch.zeros(2, device="cuda:1"), "cuda:1"),
    "number": (lambda: torch.zeros(2, device=1), "cuda:1"),
    "data": (lambda: torch.tensor([1.0], device="cuda:1"), "cuda:1"),
    "array": (lambda: torch.as_tensor(torch.ones(2).numpy(), device="cuda:1"), "cuda:1"),
    "current device": (lambda: torch.zeros(2, device="cuda"), "cuda:0"),
    "no device": (lambda: torch.zeros(2), "cpu"),
    "legacy": (lambda: torch.FloatTensor([1.0]), "cpu"),
    "like": (lambda: torch.ones_like(torch.zeros(2, device="cuda:1")), "cuda:1"),
    "like elsewhere": (lambda: torch.ones_like(torch.zeros(2, device="cuda:1"), device="cpu"), "cpu"),
    "new": (lambda: torch.zeros(2, device="cuda:1").new_full((1,), 3.0), "cuda:1"),
    "to number": (lambda: torch.zeros(2).to(1), "cuda:1"),
    "to with dtype": (lambda: torch.zeros(2).to("cuda:1", torch.float64), "cuda:1"),
    "to dtype": (lambda: torch.zeros(2, device="cuda:1").to(torch.float64), "cuda:1"),
    "to keywords": (lambda: torch.zeros(2).to(device="cuda:1", dtype=torch.half, non_blocking=True), "cuda:1"),
    "cuda": (lambda: torch.zeros(2).cuda(), "cuda:0"),
    "cpu": (lambda: torch.zeros(2, device="cuda:1").cpu(), "cpu"),
    "type": (lambda: torch.zeros(2).type("torch.cuda.DoubleTensor"), "cuda:0"),
    "view": (lambda: torch.zeros(2, 3, device="cuda:1").t()[1:], "cuda:1"),
    "detached": (lambda: torch.zeros(2, device="cuda:1", requires_grad=True).detach(), "cuda:1"),
    "data of a parameter": (lambda: nn.Parameter(torch.zeros(2, device="cuda:1")).data, "cuda:1"),
    "copy": (lambda: copy.deepcopy(torch.zeros(2, device="cuda:1")), "cuda:1"),
    "copy of a module": (lambda: copy.deepcopy(nn.Linear(1, 1).to(1)).weight, "cuda:1"),
    "pickled": (lambda: pickle.loads(pickle.dumps(torch.zeros(2, device="cuda:1"))), "cuda:1"),
    "module": (lambda: nn.Linear(1, 1, device="cuda:1").weight, "cuda:1"),
    "materialised": (lambda: nn.Linear(1, 1, device="meta").to_empty(device="cuda:1").weight, "cuda:1"),
    "sparse": (lambda: torch.eye(2, device="cuda:1").to_sparse(), "cuda:1"),
    "pinned": (lambda: torch.zeros(2).pin_memory().to("cuda:1", non_blocking=True), "cuda:1"),
}


@pytest.mark.parametrize("name", MADE)
def test_where_a_tensor_is(name: str) -> None:
    """However it came about."""
    make, device = MADE[name]
    with ddpcheck.simulated_devices(2):
        made = make()
        assert str(made.device) == device
        assert made.is_cuda is (device != "cpu")
        assert made.is_cpu is (device == "cpu")
        assert made.get_device() == (-1 if device == "cpu" else int(device[-1]))


def test_defaults() -> None:
    """Contexts and defaults choose the device of new tensors, and ``cuda`` is the current one."""
    with ddpcheck.simulated_devices(4):
        with torch.device("cuda:3"):
            assert nn.Linear(1, 1).weight.get_device() == 3
        torch.set_default_device("cuda:2")
        try:
            assert torch.zeros(1).get_device() == 2
        finally:
            torch.set_default_device(None)
        torch.cuda.set_device(1)
        assert torch.cuda.current_device() == 1
        with torch.cuda.device(2):
            assert torch.zeros(1, device="cuda").get_device() == 2
        assert torch.zeros(1, device="cuda").get_device() == 1
        assert torch.zeros(1).get_device() == -1


def test_what_it_prints() -> None:
    """A tensor shows its device as on a GPU."""
    with ddpcheck.simulated_devices(2):
        assert repr(torch.zeros(1, device="cuda:1")) == "tensor([0.], device='cuda:1')"
        assert torch.zeros(1, device="cuda:1").type() == "torch.cuda.FloatTensor"


def test_types_of_tensors() -> None:
    """They make tensors on the current device, and know them."""
    with ddpcheck.simulated_devices(1):
        made: Any = torch.cuda.FloatTensor([1, 2])  # type: ignore[attr-defined]
        assert str(made.device) == "cuda:0"
        assert isinstance(made, torch.cuda.FloatTensor)  # type: ignore[attr-defined]
        assert not isinstance(made.cpu(), torch.cuda.FloatTensor)  # type: ignore[attr-defined]
        torch.cuda.random.manual_seed(1)
        with pytest.raises(ddpcheck.NotSimulated, match="range_push"):
            torch.cuda.nvtx.range_push("a")


class Image(torch.Tensor):
    """A kind of tensor of a library's own."""


@pytest.mark.parametrize("learnt", [False, True])
def test_a_move_keeps_the_kind_of_a_tensor(learnt: bool) -> None:
    """By every way of moving it; of a parameter comes a tensor, as from torch."""
    with ddpcheck.simulated_devices(2):
        image = torch.ones(2).as_subclass(Image).requires_grad_(learnt)
        moved = [image.cuda(), image.cuda().cpu(), image.to("cuda:1"), image.to("cuda:1", torch.float64)]
        assert [str(each.device) for each in moved] == ["cuda:0", "cpu", "cuda:1", "cuda:1"]
        assert {type(each) for each in moved} == {Image}
        assert type(nn.Parameter(torch.ones(1), learnt).cuda()) is torch.Tensor


class Samples(Dataset[torch.Tensor]):
    """One that is made on the CPU, and two that are not."""

    make = (lambda: torch.ones(1), lambda: torch.ones(1, device="cuda"), lambda: torch.ones(1).cuda())

    def __len__(self) -> int:
        return len(self.make)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.make[index]()


def test_a_loaders_worker_has_no_device() -> None:
    """It is a forked process, in which CUDA cannot begin anew."""
    with ddpcheck.simulated_devices(1):
        batches = iter(DataLoader(Samples(), num_workers=1))
        assert next(batches).tolist() == [[1.0]]
        for _ in range(2):
            with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"):
                next(batches)
        assert list(batches) == []


def test_random_streams_are_the_cpus() -> None:
    """One generator for all: seeding a device seeds it, and its state comes back."""
    with ddpcheck.simulated_devices(2):
        torch.cuda.manual_seed(5)
        first = torch.rand(3, device="cuda:1")
        torch.manual_seed(5)
        assert torch.equal(first.cpu(), torch.rand(3))
        states = torch.cuda.get_rng_state_all()
        first = torch.rand(3, device="cuda:0")
        torch.cuda.set_rng_state_all(states)
        assert torch.equal(first, torch.rand(3, device="cuda:0"))
        assert len(states) == 2
