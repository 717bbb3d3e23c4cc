"""Claim 13 (S0): devices 2r and 2r + 1 keep the ranks apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import ddpcheck
from ddpcheck import assert_device_placement, simulated_devices
from fixtures import s0_model_parallel
from tests.claims.findings import only_finding


def devices_used(model: torch.nn.Module) -> set[int]:
    return {parameter.device.index for parameter in model.parameters()}


def train_on(rank: int, indices: tuple[int, int]) -> torch.nn.Module:
    torch.cuda.set_device(indices[0])
    first, second = (torch.device("cuda", index) for index in indices)
    return s0_model_parallel.train(rank, (first, second), steps=1)


@pytest.mark.ddp(world_size=4)
def test_four_ranks_use_eight_devices_none_of_them_twice(ddp):
    """Simulated: what the ranks use, put together, is each of the eight devices once."""
    with simulated_devices(8):
        devices = s0_model_parallel.devices_of(ddp.local_rank, ddp.local_world_size)
        torch.cuda.set_device(devices[0])
        model = s0_model_parallel.train(ddp.rank, devices)
        assert_device_placement(model, devices_per_rank=2)
        used = devices_used(model)
    for index in used:
        (ddp.tmp_path / f"cuda{index}-rank{ddp.rank}").touch(exist_ok=False)
    torch.distributed.barrier()
    names = sorted(path.name.partition("-")[0] for path in ddp.tmp_path.iterdir())
    assert names == [f"cuda{index}" for index in range(8)]


@pytest.mark.ddp(world_size=4)
@pytest.mark.parametrize(("mapping", "ranks", "cause"), [
    (lambda r: (2 * r + 1, 2 * r + 2), (0, 1, 2, 3), "off by one"),
    (lambda r: (2 * r - 1 if r else 0, 2 * r), (1, 2, 3), ""),
    (lambda r: (r, r + 1), (1, 2, 3), "neighbours overlap"),
    (lambda r: (0, 1), (1, 2, 3), ""),
], ids=["one-too-high", "one-too-low", "not-doubled", "the-same-for-all"])  # fmt: skip
def test_another_mapping_is_caught(ddp, mapping: Callable[[int], tuple[int, int]], ranks, cause):
    """Simulated: with every other mapping a step goes through as well, and the assertion names who is elsewhere."""
    with simulated_devices(9):
        model = train_on(ddp.rank, mapping(ddp.rank))
        with pytest.raises(ddpcheck.Violation) as caught:
            assert_device_placement(model, devices_per_rank=2)
    finding = only_finding(caught)
    assert finding.check == "device-placement"
    assert finding.ranks == ranks
    assert cause in finding.cause


@pytest.mark.ddp(world_size=4)
def test_overlap_is_caught_by_the_devices_alone(ddp):
    """Simulated: where a program's own mapping is taken at its word, the devices that two ranks use are named."""

    def overlapping(rank: int) -> tuple[int, int]:
        return rank, rank + 1

    with simulated_devices(8):
        model = train_on(ddp.rank, overlapping(ddp.rank))
        with pytest.raises(ddpcheck.Violation) as caught:
            assert_device_placement(model, devices=overlapping)
    finding = only_finding(caught)
    assert finding.ranks == (0, 1, 2, 3)
    assert finding.found == "; ".join(f"cuda:{r + 1} used by ranks {r} and {r + 1}" for r in range(3))


@pytest.mark.ddp(world_size=4)
def test_the_documents_mapping_at_its_word(ddp):
    """Simulated: the twin, whose devices do not overlap, is silent."""

    def apart(rank: int) -> tuple[int, int]:
        return 2 * rank, 2 * rank + 1

    with simulated_devices(8):
        assert_device_placement(train_on(ddp.rank, apart(ddp.rank)), devices=apart)


@pytest.mark.ddp(world_size=4)
def test_too_few_devices_are_told(ddp):
    """Simulated: with six devices the last rank has none, which CUDA's own error says, and the assertion in advance."""
    with simulated_devices(6):
        if ddp.rank == 3:
            with pytest.raises(RuntimeError, match="invalid device ordinal"):
                s0_model_parallel.TwoDevices(torch.device("cuda", 6), torch.device("cuda", 7))
        with pytest.raises(ddpcheck.Violation) as caught:
            assert_device_placement(torch.nn.Linear(2, 2), devices_per_rank=2)
    finding = only_finding(caught)
    assert finding.ranks == (3,)
    assert "cuda:6, cuda:7, where it sees 6 GPUs" in finding.found


@pytest.mark.gpu(4)
@pytest.mark.ddp(world_size=2, device="cuda")
def test_on_gpus(ddp):
    """The same where two ranks have four GPUs: apart by the document's mapping, and caught with the other."""
    model = train_on(ddp.rank, (2 * ddp.rank, 2 * ddp.rank + 1))
    assert_device_placement(model, devices_per_rank=2)
    del model
    model = train_on(ddp.rank, (ddp.rank, ddp.rank + 1))
    with pytest.raises(ddpcheck.Violation) as caught:
        assert_device_placement(model, devices_per_rank=2)
    assert "neighbours overlap" in only_finding(caught).cause
