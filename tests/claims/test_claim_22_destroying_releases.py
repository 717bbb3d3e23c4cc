"""Claim 22 (S2, S3): destroy_process_group releases what the group has held."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from fixtures import s0_basic
from tests.claims.groups import group_by_file


@pytest.mark.ddp(world_size=[2, 4])
def test_second_group_in_the_same_process_trains_as_the_first(ddp):
    """After a group is destroyed another can be made, and the same training in it ends in the same bits."""
    ends = []
    for number in range(3):
        with group_by_file(ddp, name=f"store{number}"):
            assert dist.get_world_size() == ddp.world_size
            model, losses = s0_basic.train(ddp.rank, steps=3)
            ddpcheck.assert_parameters_identical(model)
            ends.append((losses, model.module.state_dict()))
        assert not dist.is_initialized()

    (losses, state), *others = ends
    for again, same in others:
        assert again == losses
        torch.testing.assert_close(dict(same), dict(state), rtol=0, atol=0)


@pytest.mark.ddp(world_size=2)
def test_what_is_left_is_no_group(ddp):
    """Nothing can be wrapped or reduced once the group is gone, and torch says so: no quiet training alone."""
    with group_by_file(ddp):
        model, _ = s0_basic.train(ddp.rank)

    with pytest.raises((RuntimeError, ValueError), match="Default process group has not been initialized"):
        ddp.wrap(s0_basic.build_model(seed=0))
    with pytest.raises((RuntimeError, ValueError), match="Default process group has not been initialized"):
        dist.all_reduce(torch.ones(1))
    assert model.module.hidden.weight.grad is not None


@pytest.mark.ddp(world_size=2)
def test_second_group_beside_one_that_stands_is_refused(ddp):
    """The fault: a group that was not destroyed is in the way of the next one."""
    with pytest.raises((RuntimeError, ValueError), match="initialize the default process group twice"):
        dist.init_process_group("gloo", init_method=f"file://{ddp.tmp_path}/store", rank=ddp.rank, world_size=2)


@pytest.mark.ddp(world_size=2)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open sockets are counted in /proc")
def test_sockets_are_closed(ddp):
    """A group's connections are gone with it: as many sockets are open as before it was made."""
    dist.destroy_process_group()
    before = sockets()
    dist.init_process_group("gloo", init_method=f"file://{ddp.tmp_path}/store", rank=ddp.rank, world_size=2)
    # The ranks meet by files, not by a collective: torch may hang in letting go of a group right after one.
    (ddp.tmp_path / f"joined{ddp.rank}").touch()
    while not (ddp.tmp_path / f"joined{1 - ddp.rank}").exists():
        time.sleep(0.01)
    during = sockets()

    dist.destroy_process_group()

    assert during > before
    assert sockets() == before


def sockets() -> int:
    """How many sockets this process has open."""
    links = [entry for entry in os.scandir("/proc/self/fd") if entry.is_symlink()]
    found = 0
    for link in links:
        try:
            found += os.readlink(link).startswith("socket:")
        except FileNotFoundError:  # that of the listing itself
            continue
    return found


TRAINING = """
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    step(model, optimizer)
"""


def test_group_left_behind_is_reported(watch):
    """A script that ends without destroying its group is warned of it, on the ranks that did; its twin is not."""
    left = watch(TRAINING + "if rank == 0:\n    dist.destroy_process_group()\n")
    assert left.ended_well
    (finding,) = left.findings
    assert (finding["check"], finding["severity"], finding["ranks"]) == ("process-hygiene", "warning", [1])
    assert "init_process_group" in left.line(finding)

    destroyed = watch(TRAINING + "dist.destroy_process_group()\n")
    assert destroyed.ended_well
    assert destroyed.findings == []
    assert destroyed.said["checked"]["process-hygiene"]
