"""Claim 8 (S0, S2, S4): saving on one rank is enough, since all ranks hold the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from ddpcheck.probes.digests.exact_digests import digest
from fixtures import s0_basic
from tests.claims.findings import only_finding


def digests(state: dict[str, torch.Tensor]) -> dict[str, str]:
    return {name: digest(tensor) for name, tensor in state.items()}


def saved_by_rank_0(model: DistributedDataParallel, path: Path) -> dict[str, torch.Tensor]:
    """What is in the file that rank 0 has written, as every rank reads it."""
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), path)
    dist.barrier()
    return torch.load(path, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


@pytest.mark.ddp(world_size=[2, 4])
def test_file_of_one_rank_is_the_state_of_all(ddp):
    """After some steps of the tutorial's program, rank 0's file has every rank's parameters to the bit."""
    model, _ = s0_basic.train(ddp.rank, steps=5)

    state = saved_by_rank_0(model, ddp.tmp_path / "model.pt")

    assert digests(state) == digests(model.module.state_dict())
    ddpcheck.assert_replicas_identical(model)


@pytest.mark.ddp(world_size=[2, 4])
def test_replicas_that_have_parted_are_caught(ddp):
    """The fault: a rank whose replica has parted is not in the file, and the assertion names it."""
    model, _ = s0_basic.train(ddp.rank, steps=2)
    odd = ddp.world_size - 1
    if ddp.rank == odd:
        with torch.no_grad():
            model.module.output.bias[0] += 1

    state = saved_by_rank_0(model, ddp.tmp_path / "model.pt")

    assert (digests(state) == digests(model.module.state_dict())) is (ddp.rank != odd)
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_replicas_identical(model)
    assert only_finding(caught).ranks == (odd,)


@pytest.mark.ddp(world_size=2)
def test_running_statistics_are_rank_0s(ddp):
    """Its limit: statistics of a rank's own batches differ from the file's, until DDP broadcasts rank 0's."""
    model = ddp.wrap(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    torch.manual_seed(ddp.rank)
    model(torch.randn(8, 4)).sum().backward()

    state = saved_by_rank_0(model, ddp.tmp_path / "model.pt")

    differing = {n for n, d in digests(state).items() if d != digests(model.module.state_dict())[n]}
    assert differing == (set() if ddp.rank == 0 else {"1.running_mean", "1.running_var"})
    model(torch.randn(8, 4))  # broadcasts first
    assert digests(saved_by_rank_0(model, ddp.tmp_path / "again.pt"))["1.num_batches_tracked"] == digest(
        torch.tensor(2)
    )
