"""Gathers of FSDP2's own go over no memory of the program's, and cost less for it; all others are looked at."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh

from ddpcheck.evidence import Call
from ddpcheck.probes.moments import unsharded
from ddpcheck.probes.optimizers import gradient_events, program_reductions
from ddpcheck.probes.recording import lone_rank

GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
SCATTER = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"


@pytest.fixture
def world(tmp_path: Any) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def caller(module: str) -> Callable[..., Any]:
    """A function of a module of this name that gathers."""
    made = types.ModuleType(module)
    exec("def gather(function, *given):\n    return function(*given)\n", made.__dict__)
    return made.gather  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("module", "noted"),
    [
        ("torch.distributed.fsdp._fully_shard._fsdp_collectives", 0),
        ("torch.distributed.fsdp._flat_param", 2),  # FSDP1 gathers what is a parameter itself
        ("trainer", 2),
    ],
)
def test_what_a_gather_goes_over(recorded: Any, world: None, module: str, noted: int) -> None:
    """It is on record, whoever calls; what it goes over is remembered unless that is FSDP2's own."""
    before = len(program_reductions._log)
    caller(module)(getattr(dist, GATHER), torch.zeros(4), torch.ones(4))
    assert len(program_reductions._log) - before == noted
    assert [one.op for one in recorded(Call)] == [GATHER]


def test_what_fsdp_reduces(recorded: Any, world: None) -> None:
    """Gradients lie in what its reductions write to."""
    before = len(program_reductions._log)
    fsdp = caller("torch.distributed.fsdp._fully_shard._fsdp_collectives")
    fsdp(getattr(dist, SCATTER), torch.zeros(4), torch.ones(4))
    assert len(program_reductions._log) - before == 2


def test_the_whole_tensors_of_fsdp2_are_known_from_the_first_gather(
    world: None, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a model that no optimizer steps, and that is first called when all windows are quiet."""
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this torch has it elsewhere")
    monkeypatch.setattr(lone_rank, "_lone", False)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    assert gradient_events.is_quiet()
    teacher = fsdp.fully_shard(torch.nn.Linear(4, 2), mesh=init_device_mesh("cpu", (1,)))
    parts = list(teacher.parameters())
    with torch.no_grad():
        teacher(torch.ones(1, 4))
    wholes = [whole() for part in parts for _, whole in [unsharded._whole[id(part)]]]
    assert [unsharded.sharded(whole) for whole in wholes if whole is not None] == parts
