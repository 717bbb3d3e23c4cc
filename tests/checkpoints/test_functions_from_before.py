"""Functions that somebody holds from before they were watched: what they do is seen all the same."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from fixtures import s0_basic
from tests.checkpoints.asserting import loading, saved, violated

barrier_from_before = functools.partial(dist.barrier)


class Comm:
    """A helper that has taken functions by reference, as many do."""

    meet = staticmethod(dist.barrier)
    put_down = staticmethod(torch.save)


WAYS: dict[str, Callable[[], object]] = {
    "a partial": lambda: barrier_from_before(),
    "a class": lambda: Comm.meet(),
    "a default": lambda meet=dist.barrier: meet(),
    "the group itself": lambda: dist.group.WORLD.barrier().wait(),
    "a broadcast of the group": lambda: dist.group.WORLD.broadcast(torch.zeros(1), 0).wait(),
    "an all-reduce of the group": lambda: dist.group.WORLD.allreduce([torch.zeros(1)]).wait(),
}


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("way", WAYS)
def test_waiting_by_functions_from_before(ddp, way):
    """Whoever holds a collective from before it was watched, or asks the group itself, waits just as well."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = ddp.tmp_path / "model.pt"

    def save() -> None:
        if dist.get_rank() == 0:
            Comm.put_down(model.module.state_dict(), path)
        WAYS[way]()

    ddpcheck.assert_read_after_write(save, loading(path, model))
    ddpcheck.assert_single_writer(save)


@pytest.mark.ddp(world_size=2)
def test_the_group_does_not_wait_where_nobody_waits(ddp):
    """A collective of the group that nobody waits for, or the wrong way round, orders nothing."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = saved(ddp, model)

    def save() -> None:
        if dist.get_rank() == 0:
            draft = path.with_suffix(".draft")
            torch.save(model.module.state_dict(), draft)
            draft.replace(path)
        dist.group.WORLD.broadcast(torch.zeros(1), 1).wait()

    assert violated(ddpcheck.assert_read_after_write, save, loading(path, model)).ranks == (1,)


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("how", ["a function from before", "a scripted module"])
def test_writers_by_functions_from_before(ddp, how):
    """All ranks writing one file is found however they have come by the function."""
    path = ddp.tmp_path / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer torch would rather have it compiled
        scripted = torch.jit.script(torch.nn.Linear(1, 1)) if how == "a scripted module" else None

    def save() -> None:
        scripted.save(path) if scripted is not None else Comm.put_down({"a": torch.zeros(1)}, path)

    assert violated(ddpcheck.assert_single_writer, save).ranks == (0, 1)
