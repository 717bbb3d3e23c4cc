"""Collectives on simulated devices: every kind of them over gloo, tensors that lie apart, and gloo in NCCL's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from ddpcheck.device_simulation.simulation import rehearse

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # torch renames collectives from time to time


def _exchange(mine: Tensor, rank: int) -> list[Tensor]:
    other = torch.empty_like(mine)
    work = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, other, 1 - rank)])
    for each in work:
        each.wait()
    return [other]


def _scatter(mine: Tensor, rank: int) -> list[Tensor]:
    dist.scatter(mine, [torch.full_like(mine, 7.0)] * 2 if rank == 0 else None, 0)
    return [mine]


def _gather(mine: Tensor, rank: int) -> list[Tensor]:
    into = [torch.empty_like(mine) for _ in range(2)] if rank == 0 else None
    dist.gather(mine, into, 0)
    return into or []


def _with(call: Callable[[Tensor, Tensor], Any], shape: int) -> Callable[[Tensor, int], list[Tensor]]:
    def run(mine: Tensor, rank: int) -> list[Tensor]:
        into = mine.new_zeros(shape)
        call(into, mine)
        return [into]

    return run


def _in_place(call: Callable[[Tensor], Any]) -> Callable[[Tensor, int], list[Tensor]]:
    def run(mine: Tensor, rank: int) -> list[Tensor]:
        call(mine)
        return [mine]

    return run


def _all_gather(mine: Tensor, rank: int) -> list[Tensor]:
    into = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(into, mine)
    return into


def _objects(mine: Tensor, rank: int) -> list[Tensor]:
    found: list[Any] = [None] * 2
    dist.all_gather_object(found, mine)
    sent = [{"a": mine}] if rank == 0 else [None]
    dist.broadcast_object_list(sent, 0)
    assert [str(each.device) for each in (*found, sent[0]["a"])] == ["cuda:0", "cuda:1", "cuda:0"]  # type: ignore[index]
    return [found[rank]]


def _send(mine: Tensor, rank: int) -> list[Tensor]:
    dist.send(mine, 1) if rank == 0 else dist.recv(mine, 0)
    return [mine]


COLLECTIVES: dict[str, Callable[[Tensor, int], list[Tensor]]] = {
    "all_gather": _all_gather,
    "all_gather_into_tensor": _with(dist.all_gather_into_tensor, 4),
    "all_reduce": _in_place(dist.all_reduce),
    "all_reduce later": _in_place(lambda mine: dist.all_reduce(mine, async_op=True).wait()),
    "broadcast": _in_place(lambda mine: dist.broadcast(mine, 0)),
    "exchange": _exchange,
    "gather": _gather,
    "objects": _objects,
    "reduce": _in_place(lambda mine: dist.reduce(mine, 0)),
    "reduce_scatter_tensor": _with(dist.reduce_scatter_tensor, 1),
    "scatter": _scatter,
    "send": _send,
}
if not hasattr(torch._C._distributed_c10d.Backend, "supports_coalescing"):
    del COLLECTIVES["exchange"]  # torch before 2.7 takes a batch on GPUs for one that NCCL has


@pytest.mark.ddp(world_size=2)
def test_every_collective(ddp: Any) -> None:
    """Each of them runs, its values are the CPU's, and what comes in is where the rank's tensors are."""
    wrong = set()
    for name, call in COLLECTIVES.items():
        plain = call(torch.arange(2.0) + ddp.rank, ddp.rank) if name != "objects" else None
        with ddpcheck.simulated_devices(2):
            torch.cuda.set_device(ddp.rank)
            there = torch.device("cuda", ddp.rank)
            found = call((torch.arange(2.0) + ddp.rank).to(there), ddp.rank)
            if {each.device for each in found} - {there}:
                wrong.add(name)
            if plain is not None and not all(torch.equal(a, b.cpu()) for a, b in zip(plain, found, strict=True)):
                wrong.add(name)
        dist.barrier()
    assert not wrong


@pytest.mark.ddp(world_size=2)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch compiles something of its own on import
def test_zero_redundancy_optimizer(ddp: Any) -> None:
    """It broadcasts parameters in its step, each from the rank that owns it."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    with ddpcheck.simulated_devices(2):
        model = DistributedDataParallel(nn.Linear(4, 1).to(ddp.rank), device_ids=[ddp.rank])
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
        model(torch.ones(2, 4) * ddp.rank).sum().backward()
        optimizer.step()
        ddpcheck.assert_parameters_identical(model)


@pytest.mark.ddp(world_size=2)
def test_tensors_of_a_collective_lie_on_one_device(ddp: Any) -> None:
    """A list or an output that was left on the CPU is refused on every rank, and nothing is sent."""
    with ddpcheck.simulated_devices(2):
        mine = torch.ones(2, device=f"cuda:{ddp.rank}")
        with pytest.raises(RuntimeError, match=r"at least two devices.*allgather"):
            dist.all_gather([torch.empty(2) for _ in range(2)], mine)
        with pytest.raises(RuntimeError, match="at least two devices"):
            dist.all_gather_into_tensor(torch.empty(4), mine)
        dist.all_gather_into_tensor(torch.empty(4), mine.cpu())


@pytest.mark.ddp(world_size=2)
def test_gloo_in_the_place_of_nccl(ddp: Any) -> None:
    """A tensor, or a model, on the CPU is refused as by NCCL; on devices all goes well, and so does a group of gloo."""
    rehearse(2, "nccl")
    torch.cuda.set_device(ddp.rank)
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.all_reduce(torch.ones(1))
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        DistributedDataParallel(nn.Linear(2, 2))
    dist.all_reduce(torch.ones(1), group=dist.new_group(backend="gloo"))
    for name, call in COLLECTIVES.items():
        assert call(torch.ones(2, device="cuda"), ddp.rank) or name == "gather"
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).cuda(), find_unused_parameters=True
    )
    for _ in range(3):
        model(torch.rand(4, 2, device="cuda")).sum().backward()
    dist.barrier()
    ddpcheck.assert_gradients_identical(model)


@pytest.mark.ddp(world_size=2)
def test_rehearsal_of_gloo_takes_the_cpu(ddp: Any) -> None:
    """Where the test asked for gloo, tensors on the CPU are as good as others."""
    rehearse(2, "gloo")
    ones = torch.ones(1)
    dist.all_reduce(ones)
    DistributedDataParallel(nn.Linear(2, 2))
    assert ones.item() == 2.0


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("start", ["cpu", "cuda"])
def test_moved_after_the_wrap(ddp: Any, start: str) -> None:
    """A layer that moves to another device leaves DDP's hooks behind, and its gradients are never reduced."""
    with ddpcheck.simulated_devices(4):
        one, two = torch.device("cuda", 2 * ddp.rank), torch.device("cuda", 2 * ddp.rank + 1)
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(4, 1).to(one if start == "cuda" else "cpu"))
        model.to(two)
        model(torch.full((2, 4), float(ddp.rank), device=two)).sum().backward()
        assert model.module.weight.grad.tolist() == [[2.0 * ddp.rank] * 4]
        assert model.module.weight.grad.device == two


@pytest.mark.ddp(world_size=2)
def test_moved_before_the_wrap(ddp: Any) -> None:
    """The same moves in the right order, and a move to where the layer is already: gradients are reduced."""
    with ddpcheck.simulated_devices(2):
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(4, 1).to(ddp.rank))
        model.to(ddp.rank)
        model.module.weight.data = model.module.weight.data * 2
        model(torch.full((2, 4), float(ddp.rank), device=f"cuda:{ddp.rank}")).sum().backward()
        assert model.module.weight.grad.tolist() == [[1.0] * 4]
