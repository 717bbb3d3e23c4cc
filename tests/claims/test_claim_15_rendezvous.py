"""Claim 15 (S0, S3): FileStore, TCPStore and env:// lead to the same group."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import ddpcheck
from fixtures import s3_ten_steps
from tests.claims.groups import group_of_its_own, open_store, set_environment

WAYS = ["file", "tcp", "env"]


def rendezvous(ddp, way: str, monkeypatch) -> dict[str, object]:
    """What init_process_group is to be told, for the ranks to meet in this way."""
    who = {"rank": ddp.rank, "world_size": ddp.world_size}
    if way == "file":
        return {"store": dist.FileStore(str(ddp.tmp_path / "store"), ddp.world_size), **who}
    store = open_store(ddp)
    if way == "tcp":
        return {"store": store, **who}
    set_environment(monkeypatch, store, ddp.rank, ddp.world_size)
    return {"init_method": "env://"}


def ten_steps(rank: int) -> dict[str, Tensor]:
    """The encyclopedia's training, and the parameters that it ends with."""
    model = s3_ten_steps.train(rank)
    ddpcheck.assert_parameters_identical(model)
    return {name: parameter.detach().clone() for name, parameter in model.module.named_parameters()}


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_training_is_the_same_whichever_way_the_ranks_met(ddp, way, monkeypatch):
    """Ten steps in a group made in this way end in the bits of those in the group that the test was given."""
    expected = ten_steps(ddp.rank)

    with group_of_its_own(**rendezvous(ddp, way, monkeypatch)):
        assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (ddp.rank, ddp.world_size, "gloo")
        found = ten_steps(ddp.rank)

    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.ddp(world_size=2)
def test_group_with_its_ranks_in_another_order_is_another(ddp):
    """So that the comparison has something to tell apart: where ranks have changed places, the bits are others."""
    expected = ten_steps(ddp.rank)

    with group_of_its_own(init_method=f"file://{ddp.tmp_path}/store", rank=1 - ddp.rank, world_size=2):
        found = ten_steps(ddp.rank)  # seeded as before

    with pytest.raises(AssertionError, match="not equal"):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.ddp(world_size=2)
def test_ranks_that_meet_at_different_places_do_not_meet(ddp):
    """A file of each rank's own: both wait for the other, and tell so at their timeout; no group comes of it."""
    apart = dist.FileStore(str(ddp.tmp_path / f"store{ddp.rank}"), ddp.world_size)

    with (
        pytest.raises(RuntimeError, match=r"(?i)time(d )?out"),
        group_of_its_own(store=apart, rank=ddp.rank, world_size=ddp.world_size, timeout=0.5),
    ):
        pass

    assert not dist.is_initialized()


@pytest.mark.ddp(world_size=2)
def test_the_documents_program_meets_by_its_environment(ddp, monkeypatch, capsys):
    """The encyclopedia's program, told of nothing but the four variables, makes its group and ends."""
    rendezvous(ddp, "env", monkeypatch)
    assert all(name in os.environ for name in s3_ten_steps.VARIABLES)
    dist.destroy_process_group()

    s3_ten_steps.main()

    assert capsys.readouterr().out == f"rank {ddp.rank}: 10 steps\n"
    assert not dist.is_initialized()
