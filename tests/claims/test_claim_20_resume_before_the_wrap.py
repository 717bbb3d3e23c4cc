"""Claim 20 (S2): a resume loads into the unwrapped module, and then wraps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from fixtures import s2_breast_cancer as s2


class Training:
    """The job of the guide, step by step: model, optimizer, loader, and where in the epochs it is."""

    def __init__(self, wrap: Callable[[nn.Module], nn.Module]) -> None:
        dataset, _ = s2.load_data()
        self.model: nn.Module = wrap(s2.build_model())
        self.optimizer = s2.make_optimizer(self.model)
        self.loader = s2.make_loader(dataset)
        self.epochs_done = 0

    def epoch(self) -> None:
        self.loader.sampler.set_epoch(self.epochs_done)  # type: ignore[attr-defined]
        for inputs, labels in self.loader:
            self.optimizer.zero_grad()
            s2.loss_of(self.model, inputs, labels).backward()
            self.optimizer.step()
        self.epochs_done += 1


def save(training: Training, path: Path) -> None:
    """As the guide's job does it: rank 0 writes, and all wait."""
    if dist.get_rank() == 0:
        model = training.model
        bare = model.module if isinstance(model, DistributedDataParallel) else model
        s2.save_checkpoint(path, bare, training.optimizer, training.epochs_done)
    dist.barrier()


def resume(training: Training, path: Path) -> Training:
    """As the guide says: a bare module is loaded on every rank, and then wrapped."""
    resumed = Training(lambda module: module)
    resumed.epochs_done = s2.load_checkpoint(path, resumed.model, resumed.optimizer, torch.device("cpu"))
    if isinstance(training.model, DistributedDataParallel):
        resumed.model = DistributedDataParallel(resumed.model)
    return resumed


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.few(1)
def test_next_epochs_are_those_of_a_run_that_never_stopped(ddp):
    """Two epochs, a resume and two more equal four without a stop, to the bit; kills and bare modules included."""
    ddpcheck.assert_checkpoint_resumable(
        save, resume, build=Training, step=Training.epoch, before=2, after=2, kills=8,
        ignore=["random state of torch"],  # each pass of a loader draws a seed for workers that there are not
    )  # fmt: skip


@pytest.mark.ddp(world_size=2)
def test_the_guides_job_resumes(ddp):
    """The job itself: stopped after two epochs and started again, it ends where four epochs end."""
    stopped, straight = ddp.tmp_path / "stopped.pt", ddp.tmp_path / "straight.pt"
    torch.manual_seed(0)
    whole = s2.train(s2.Job(epochs=4, save_every=2, checkpoint=straight), ddp.device)
    torch.manual_seed(0)
    s2.train(s2.Job(epochs=2, save_every=2, checkpoint=stopped), ddp.device)
    torch.manual_seed(1)  # another process would draw other weights

    again = s2.train(s2.Job(epochs=4, save_every=2, checkpoint=stopped), ddp.device)

    assert (whole.first_epoch, again.first_epoch) == (0, 2)
    torch.testing.assert_close(
        dict(again.model.module.state_dict()), dict(whole.model.module.state_dict()), rtol=0, atol=0
    )


@pytest.mark.ddp(world_size=[2, 4])
@pytest.mark.few(1)
def test_loading_into_one_rank_after_the_wrap_is_caught(ddp):
    """The fault: once wrapped, DDP sends nothing more, and the ranks that have not loaded keep what they had."""

    def load(training: Training, path: Path) -> None:
        if dist.get_rank() == 0:
            training.epochs_done = s2.load_checkpoint(path, training.model.module, training.optimizer, ddp.device)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_checkpoint_resumable(save, load, build=Training, step=Training.epoch, before=1, after=1)
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-load-complete"
    assert finding.ranks == tuple(range(1, ddp.world_size))


@pytest.mark.ddp(world_size=2)
def test_loading_into_one_rank_before_the_wrap_is_half_of_it(ddp):
    """Its limit: before the wrap rank 0's load reaches all parameters, and no other rank's optimizer or epoch."""

    def load(training: Training, path: Path) -> Training:
        resumed = Training(lambda module: module)
        if dist.get_rank() == 0:
            resumed.epochs_done = s2.load_checkpoint(path, resumed.model, resumed.optimizer, ddp.device)
        resumed.model = DistributedDataParallel(resumed.model)
        return resumed

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_resume_equivalent(save, load, build=Training, step=Training.epoch, before=1, after=1)
    (finding,) = caught.value.findings
    assert finding.check == "resume-equivalence"
    assert "not restored by the load" in finding.cause
