"""What a rank has in its environment, and the device that its group is bound to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch.distributed import distributed_c10d as c10d

from ddpcheck.ranks import process_group, supervisor
from ddpcheck.vocabulary.model import Gpu, Plan


def plan(gpus: int = 2, **more: Any) -> Plan:
    return Plan(
        **{
            "nodeid": "test_it.py::test_it",
            "path": "test_it.py",
            "world_size": 2,
            "backend": "nccl",
            "device": "cuda",
            "timeout": 60.0,
            "shared_dir": "",
            "own_dirs": "",
            "capture": "fd",
            "gpus": tuple(Gpu(token=str(n), key=f"GPU-{n}") for n in range(gpus)),
            **more,
        }
    )


@pytest.mark.parametrize(
    ("of", "bound"),
    [
        (plan(), {"device_id": torch.device("cuda", 1)}),
        (plan(gpus=1), {"device_id": torch.device("cuda", 0)}),
        (plan(backend="gloo"), {}),
        (plan(simulated=True), {}),
        (plan(gpus=0, device="cpu", backend="gloo"), {}),
    ],
)
def test_the_device_of_a_group(of: Plan, bound: dict[str, Any]) -> None:
    assert process_group._bound(of, 1) == bound


@pytest.mark.parametrize(
    ("newer", "chosen", "bound"),
    [
        (False, None, {}),  # NCCL would refuse tensors on the second GPU of a rank
        (True, None, {"device_id": torch.device("cuda", 2)}),  # it does so anyhow, and would take cuda:1 for rank 1
        (True, "0", {}),
    ],
)
def test_the_device_of_a_rank_with_several(
    monkeypatch: pytest.MonkeyPatch, newer: bool, chosen: str | None, bound: dict[str, Any]
) -> None:
    """The default backend for NCCL of torch 2.15 has one device."""
    monkeypatch.delattr(c10d, "_nccl2_device", raising=False)
    monkeypatch.delenv("TORCH_DIST_USE_NCCL2", raising=False)
    if newer:
        monkeypatch.setattr(c10d, "_nccl2_device", object(), raising=False)
    if chosen is not None:
        monkeypatch.setenv("TORCH_DIST_USE_NCCL2", chosen)
    assert process_group._bound(plan(gpus=4), 1) == bound


def test_what_the_caller_has_set_for_nccl_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what a module of the test has set when it was imported."""
    monkeypatch.delenv("NCCL_MAX_CTAS", raising=False)
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "2")
    sharing = plan(gpus=1, nccl_shares_gpu=True, nccl_variables={"NCCL_MAX_CTAS": "8", "NCCL_NVLS_ENABLE": "0"})
    found = process_group.environment(sharing, 0, "/run")
    assert found["NCCL_MAX_CTAS"] == "8"
    assert "NCCL_NVLS_ENABLE" not in found


@pytest.mark.parametrize(
    ("then", "now", "set_to"),
    [
        ("", None, None),
        ("", "PCI_BUS_ID", "FASTEST_FIRST"),
        ("PCI_BUS_ID", "PCI_BUS_ID", None),
        ("PCI_BUS_ID", None, "PCI_BUS_ID"),
    ],
)
def test_an_index_counts_as_it_did(
    monkeypatch: pytest.MonkeyPatch, then: str, now: str | None, set_to: str | None
) -> None:
    """A module that sets another order when it is imported does not change which GPU a rank has."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    if now is not None:
        monkeypatch.setenv("CUDA_DEVICE_ORDER", now)
    index, uuid = Gpu(token="1", key="GPU-b", order=then), Gpu(token="GPU-b", key="GPU-b", order=then)
    found = process_group.environment(replace(plan(), gpus=(index,)), 0, "/run")
    assert found.get("CUDA_DEVICE_ORDER") == set_to
    assert "CUDA_DEVICE_ORDER" not in process_group.environment(replace(plan(), gpus=(uuid,)), 0, "/run")


def test_a_first_start_on_gpus_may_take_longer() -> None:
    assert supervisor.start_patience(plan()) == supervisor.start_patience(plan(simulated=True)) + 60


def test_members_alone_may_make_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the default group is bound to no device, for torch would split it with all ranks; then it is again."""
    seen: list[Any] = []
    default = SimpleNamespace(bound_device_id="cuda:1")

    def made(ranks: list[int], use_local_synchronization: bool = False) -> str:
        seen.append(default.bound_device_id)
        if not ranks:
            raise ValueError("no ranks")
        return "group"

    monkeypatch.setattr(c10d, "new_group", made)
    monkeypatch.setattr(dist, "new_group", made)
    monkeypatch.setattr(c10d, "is_initialized", lambda: True)
    monkeypatch.setattr(c10d, "_get_default_group", lambda: default)
    process_group._let_members_alone_make_groups()
    assert dist.new_group([0, 1]) == "group"
    assert dist.new_group([0], use_local_synchronization=True) == "group"
    with pytest.raises(ValueError, match="no ranks"):
        c10d.new_group([], use_local_synchronization=True)
    assert seen == ["cuda:1", None, None]
    assert default.bound_device_id == "cuda:1"
