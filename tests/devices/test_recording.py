"""What a probe reads of tensors on devices: together with what is digested there, and else nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ddpcheck
from ddpcheck.evidence import UNREAD, UNSEEN, Step
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.optimizers import steps as optimizers
from ddpcheck.probes.recording import patching, recorder
from ddpcheck.probes.recording.pace import Pace


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Any]:
    """The steps that were put down."""
    recorder.begin(tmp_path, 1 << 20)

    def put_down() -> list[Step]:
        folder = Folder(tmp_path)
        folder.read()
        (process,) = folder.processes.values()
        return process.of(Step)

    yield put_down
    recorder.stop()


def watched(parameter: torch.Tensor) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    optimizer.register_step_pre_hook(patching.shielded(optimizers._before))
    optimizer.register_step_post_hook(patching.shielded(optimizers._after))
    return optimizer


@pytest.mark.parametrize(("device", "expected"), [
    ("cuda:0", [512.0, UNREAD, 512.0]),
    ("cuda:1", [512.0, UNREAD, 512.0]),
    ("cpu", [512.0] * 3),
])  # fmt: skip
def test_a_scale_on_a_device_is_read_at_steps_that_are_looked_at(
    steps: Any, monkeypatch: pytest.MonkeyPatch, device: str, expected: list[float]
) -> None:
    """With the digests, which nobody waits for; at another step not even that much is queued."""
    monkeypatch.setattr(Pace, "is_due", lambda self, number: number != 1)
    with ddpcheck.simulated_devices(2):
        parameter = torch.nn.Parameter(torch.ones(3, device="cuda:0"))
        parameter.grad = torch.ones(3, device="cuda:0")
        scaler, optimizer = torch.amp.GradScaler("cuda", init_scale=512.0), watched(parameter)
        scaler._scale = torch.tensor(512.0, device=device)
        step = optimizers._around_scaler_step(lambda scaler, optimizer: optimizer.step())
        for _ in range(3):
            step(scaler, optimizer)
    assert [one.scale for one in steps()] == expected
    assert [bool(one.gradients) for one in steps()] == [True, False, True]


def test_a_rate_that_is_a_tensor(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read as a scale is."""
    monkeypatch.setattr(Pace, "is_due", lambda self, number: number != 1)
    with ddpcheck.simulated_devices(1):
        parameter = torch.nn.Parameter(torch.ones(3, device="cuda"))
        optimizer = watched(parameter)
        optimizer.param_groups[0]["lr"] = torch.tensor(0.25, device="cuda")
        for _ in range(2):
            optimizer.step()
    assert [one.rates for one in steps()] == [[0.25], [UNREAD]]
    assert [one.scale for one in steps()] == [None, None]


class Foreign(torch.Tensor):
    """A tensor on a GPU without elements, of a class of its own."""

    @staticmethod
    def __new__(cls) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, (4, 3), device="cuda:0")  # type: ignore[attr-defined]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was computed with it")


def test_tensors_of_several_devices_and_kinds_are_digested_together() -> None:
    """One that cannot be looked at hinders none of those that can."""
    ones = torch.ones(4, 3)
    with ddpcheck.simulated_devices(2):
        here, there = ones.to("cuda:0"), ones.to("cuda:1")
        freed = torch.ones(4, 3, device="cuda:0")
        freed.untyped_storage().resize_(0)
        found = fast_digests.digests([here, freed, ones, there])
        assert fast_digests.digests([here]) == fast_digests.digests([there])
        assert found == b"".join(
            [fast_digests.digests([here]), UNSEEN, fast_digests.digests([ones]), fast_digests.digests([there])]
        )


def test_a_foreign_tensor_on_a_gpu() -> None:
    """It has no part in what is computed there."""
    ones = torch.ones(4, 3)
    assert fast_digests.digests([ones, Foreign(), ones]) == fast_digests.digests(
        [ones]
    ) + UNSEEN + fast_digests.digests([ones])
