"""Trainings with communication hooks of their own: what ddpcheck does for itself does not stand in their way."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from tests.checkpoints.savers import Training, by_rank_0, load, renamed

save = by_rank_0(renamed)


def build(wrap: Callable[[nn.Module], nn.Module]) -> Training:
    """Layers enough for several buckets, whose sums in the last bits depend on their layout."""
    layers = [nn.Linear(20, 300), *(nn.Linear(300, 300) for _ in range(4)), nn.Linear(300, 4)]
    model = wrap(nn.Sequential(*layers))
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def with_hook(model: nn.Module) -> None:
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook(None, default_hooks.allreduce_hook)


def step(training: Training) -> None:
    training.optimizer.zero_grad()
    torch.manual_seed(dist.get_rank())
    training.model(torch.randn(4, 20)).square().mean().backward()
    training.optimizer.step()


@pytest.mark.ddp(world_size=3)
def test_none(ddp):
    """Without a hook of the training's own the resume is equal to the bit, whatever the buckets are."""
    ddpcheck.assert_resume_equivalent(save, load, build=build, step=step)


@pytest.mark.ddp(world_size=3)
@pytest.mark.parametrize("how", ["in build", "at the first step", "torch's own"])
@pytest.mark.few(1)
def test_a_hook(ddp, how):
    """It is the training's to register, when it likes; that buckets are laid out anew is told, and is no violation."""

    def hooked(wrap: Callable[[nn.Module], nn.Module]) -> Training:
        training = build(wrap)
        if how == "in build":
            with_hook(training.model)
        elif how == "torch's own" and isinstance(training.model, DistributedDataParallel):
            training.model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        return training

    def step_with(training: Training) -> None:
        if how == "at the first step" and not getattr(training.model, "_comm_hooks", None):
            with_hook(training.model)
        step(training)

    with pytest.warns(ddpcheck.AtRisk, match="DDP lays its buckets out anew"):
        ddpcheck.assert_resume_equivalent(save, load, build=hooked, step=step_with)


@pytest.mark.ddp(world_size=3)
def test_a_hook_that_the_resume_lacks(ddp):
    """That is a difference between the two, and no matter of buckets."""
    first: list[Training] = []

    def once(wrap: Callable[[nn.Module], nn.Module]) -> Training:
        training = build(wrap)
        if not first:
            training.model.register_comm_hook(None, default_hooks.fp16_compress_hook)  # type: ignore[operator]
        first.append(training)
        return training

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_resume_equivalent(save, load, build=once, step=step)
    (finding,) = caught.value.findings
    assert finding.check == "resume-equivalence"
    assert "communication hook" in finding.advice


@pytest.mark.ddp(world_size=2)
def test_collectives_of_other_threads(ddp):
    """What a step does in a thread of its own on one rank and in the main one on the other is not on record."""

    def step_elsewhere(training: Training) -> None:
        step(training)
        if dist.get_rank() == 0:
            thread = threading.Thread(target=dist.all_reduce, args=(torch.ones(1),))
            thread.start()
            thread.join()
        else:
            dist.all_reduce(torch.ones(1))

    ddpcheck.assert_resume_equivalent(save, load, build=build, step=step_elsewhere)
