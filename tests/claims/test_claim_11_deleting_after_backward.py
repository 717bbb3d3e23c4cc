"""Claim 11 (S0): after the first backward, rank 0 may delete the file without a barrier."""

from __future__ import annotations

import os

import pytest
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from fixtures import s0_basic, s0_checkpoint


def load_and_step(model: DistributedDataParallel, path) -> None:
    s0_checkpoint.load(model, path)
    s0_basic.train_step(model, s0_basic.make_optimizer(model), s0_basic.make_batch(dist.get_rank()))


@pytest.mark.ddp(world_size=[2, 4])
def test_the_backward_has_waited_for_every_load(ddp):
    """A backward ends on rank 0 when every rank has put in its gradients, and so has loaded: the file may go."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    path = ddp.tmp_path / "model.pt"

    def load() -> None:
        load_and_step(model, path)
        if dist.get_rank() == 0:
            path.unlink()

    ddpcheck.assert_read_after_write(lambda: s0_checkpoint.save(model, path), load)
    assert not path.exists()
    ddpcheck.assert_parameters_identical(model)


@pytest.mark.ddp(world_size=[2, 4])
def test_the_tutorials_program_deletes_it_in_time(ddp):
    """The program itself, on any number of ranks: all train on from the file, and it is gone."""
    path = ddp.tmp_path / "model.pt"

    model = s0_checkpoint.train(ddp.rank, path)

    ddpcheck.assert_parameters_identical(model)
    dist.barrier()
    assert not path.exists()


@pytest.mark.ddp(world_size=[2, 4])
def test_deleting_before_it_is_caught(ddp):
    """The fault: rank 0 deletes the file once it has loaded it itself; told also where the others were in time."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    path, loaded = ddp.tmp_path / "model.pt", ddp.tmp_path / "loaded"

    def load() -> None:
        s0_checkpoint.load(model, path)
        if dist.get_rank() > 0:
            (loaded / str(dist.get_rank())).mkdir(parents=True)
            return
        for rank in range(1, dist.get_world_size()):
            while not os.access(loaded / str(rank), os.F_OK):  # luck: nothing of this is on record
                pass
        path.unlink()

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_read_after_write(lambda: s0_checkpoint.save(model, path), load)
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-read-after-write"
    assert finding.ranks == (0,)
    assert "to stay until every rank has read it" in finding.expected
