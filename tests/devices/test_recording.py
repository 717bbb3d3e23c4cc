"""What a probe reads of tensors on devices: together with what is digested there, and else nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ddpcheck
from ddpcheck.evidence import UNREAD, UNSEEN, Model, Step
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.devices.awaited import Derived, told
from ddpcheck.probes.digests import fast_digests, gpu_digests
from ddpcheck.probes.layouts import models, unwritten
from ddpcheck.probes.optimizers import steps as optimizers
from ddpcheck.probes.recording import patching, recorder
from ddpcheck.probes.recording.pace import Pace
from tests.probes.digests.counted_operations import Counting


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


CONSTANTS = {
    "zeros": (torch.zeros(5), True),
    "one element": (torch.randn(1), True),
    "no elements": (torch.zeros(0), True),
    "drawn": (torch.randn(40, 3), False),
    "half": (torch.full((7,), 0.1, dtype=torch.bfloat16), True),
    "the last differs": (torch.cat([torch.ones(99), torch.zeros(1)]), False),
    "beyond the first part": (torch.cat([torch.ones(10_000), torch.zeros(1)]), True),
    "of numbers and bits": (torch.tensor([0.0, -0.0]), False),
    "truths": (torch.ones(3, dtype=torch.bool), True),
}


def test_constants_are_told_on_devices_as_on_the_cpu() -> None:
    """For what is not there, and for what cannot be looked at: it may be a constant."""
    tensors = [one for one, _ in CONSTANTS.values()]
    expected = [constant for _, constant in CONSTANTS.values()]
    expected_here = [one.numel() > 0 and constant for one, constant in CONSTANTS.values()]
    assert fast_digests.filled([*tensors, None]) == [*expected_here, False]
    with ddpcheck.simulated_devices(2):
        there = [one.to(f"cuda:{place % 2}") for place, one in enumerate(tensors)]
        found = fast_digests.filled([*there, None, torch.ones(3)])
        assert isinstance(found, Derived)
        assert found.told() == [*expected, False, True]
    assert told(fast_digests.filled([Foreign(), torch.randn(3)])) == [True, False]


def test_nobody_waits_for_constants() -> None:
    """A kernel that compares and one that sums up for each tensor, and few more."""
    tensors = [torch.randn(8) for _ in range(30)]
    with Counting() as counted:
        gpu_digests.constants(tensors, 1024)
    assert (counted.waits, counted.kernels) == (0, 61)


def test_what_a_model_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants, and memory that nobody has written to."""

    def held(device: str) -> list[Any]:
        torch.manual_seed(0)
        kept = recorder.InMemory()
        recorder.use(kept)
        with torch.device("meta"):
            net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.BatchNorm1d(3))
        net.to_empty(device=device)
        for part in net[:2]:
            part.reset_parameters()
        models.met(kept, net)
        (model,) = (one for one in kept.kept if isinstance(one, Model))
        recorder.use(None)
        assert not model.unread
        return [(one.name, one.written, one.written and one.filled) for one in model.held]

    monkeypatch.setattr(torch.nn.Module, "to_empty", unwritten._around_to_empty(torch.nn.Module.to_empty))
    on_cpu = held("cpu")
    with ddpcheck.simulated_devices(1):
        assert held("cuda") == on_cpu
    assert ("1.weight", True, True) in on_cpu
    assert ("0.weight", True, False) in on_cpu
    assert ("2.weight", False, False) in on_cpu
