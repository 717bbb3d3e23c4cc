"""Claim 21 (S2, S4): only rank 0 writes checkpoints and logs."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from fixtures import s0_basic
from fixtures import s2_breast_cancer as s2


@pytest.mark.ddp(world_size=[2, 4])
def test_rank_0_alone_writes(ddp):
    """The guide's save and a log line, behind a look at the rank, have one writer."""
    model = ddp.wrap(s2.build_model())

    def save() -> None:
        if dist.get_rank() == 0:
            s2.save_checkpoint(ddp.tmp_path / "job.pt", model.module, s2.make_optimizer(model), epochs_done=1)
            (ddp.tmp_path / "log.csv").write_text("epoch,loss\n1,0.5\n")
        dist.barrier()

    ddpcheck.assert_single_writer(save)


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.parametrize("what", ["checkpoint", "log"])
def test_all_ranks_writing_one_path_is_caught(ddp, what):
    """The fault, made to go well: the ranks write one after the other, and the file is whole in the end."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = ddp.tmp_path / ("model.pt" if what == "checkpoint" else "log.csv")

    def save() -> None:
        for rank in range(dist.get_world_size()):
            if rank == dist.get_rank():
                torch.save(model.module.state_dict(), path) if what == "checkpoint" else path.write_text("epoch,loss\n")
            dist.barrier()

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_single_writer(save)
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-single-writer"
    assert finding.ranks == tuple(range(ddp.world_size))
    assert path.name in finding.subject
    if what == "checkpoint":
        assert torch.load(path, weights_only=True).keys() == model.module.state_dict().keys()


@pytest.mark.ddp(world_size=2)
def test_files_of_their_own_are_no_fault(ddp):
    """Ranks that name their files by their rank write side by side."""
    ddpcheck.assert_single_writer(lambda: (ddp.tmp_path / f"log-{os.environ['RANK']}.csv").write_text("epoch,loss\n"))
