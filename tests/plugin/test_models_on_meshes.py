"""Assertions of models that lie on a mesh: copies are compared, by those who hold them; each fault with its twin."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from ddpcheck import assert_gradients_identical, assert_initial_broadcast, assert_replicas_identical
from tests.claims.findings import only_finding

fsdp = pytest.importorskip("torch.distributed.fsdp")
tensor = pytest.importorskip("torch.distributed.tensor")
parallel = pytest.importorskip("torch.distributed.tensor.parallel")
if not hasattr(fsdp, "fully_shard"):
    pytest.skip("torch 2.6 and later have fully_shard", allow_module_level=True)


def net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def violation(assertion, model):
    """The only finding of a violated assertion."""
    with pytest.raises(ddpcheck.Violation) as caught:
        assertion(model)
    return only_finding(caught)


def hybrid(ddp, seed: int) -> nn.Module:
    """FSDP2 over shards in copies of two."""
    model = net(seed)
    fsdp.fully_shard(model, mesh=ddp.mesh(2, 2, names=("replicate", "shard")))
    return model


@pytest.mark.ddp(world_size=4)
def test_a_hybrid_training_holds(ddp):
    """Copies are the same at the start, have the same gradients, and stay the same; shards differ by right."""
    model = hybrid(ddp, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert assert_initial_broadcast(model) == 4
    assert assert_replicas_identical(model) == 4
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(3, 4) + ddp.rank).sum().backward()
        assert assert_gradients_identical(model) == 4
        optimizer.step()
        assert assert_replicas_identical(model) == 4


@pytest.mark.ddp(world_size=4)
def test_a_seed_of_each_copys_own(ddp):
    """fully_shard takes each rank's own weights: seeds that differ along the copies make two models."""
    model = hybrid(ddp, seed=ddp.rank // 2)
    found = violation(assert_replicas_identical, model)
    assert (found.check, found.ranks, found.count) == ("initial-broadcast", (2, 3), 4)
    assert found.expected == "the ranks that hold copies to hold the same parameters and buffers"
    assert "4 of 4 tensors that several ranks hold to differ from those of ranks 0 and 1" in found.found
    assert "along replicate" in found.advice
    assert "along replicate" in violation(assert_initial_broadcast, model).advice


@pytest.mark.ddp(world_size=4)
def test_a_gradient_that_one_holder_changes(ddp):
    """The rank is named whose gradient differs from that of the other holder of its shard."""
    model = hybrid(ddp, seed=0)
    model(torch.ones(3, 4)).sum().backward()
    assert_gradients_identical(model)
    if ddp.rank == 3:
        model[0].weight.grad.mul_(2)
    found = violation(assert_gradients_identical, model)
    assert (found.check, found.ranks, found.subject) == ("gradient-sync", (3,), "0.weight")
    assert "(rank 3 has" in found.found
    assert "rank 1 has" in found.found


def sharded_layers(ddp, norm) -> nn.Module:
    """Tensor parallel over two ranks, with a norm that both hold."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4), nn.LayerNorm(4))
    mesh = ddp.mesh(names=("tp",))
    plan = {"0": parallel.ColwiseParallel(), "1": parallel.RowwiseParallel()}
    parallel.parallelize_module(model, mesh, plan)
    model[2].weight = nn.Parameter(tensor.DTensor.from_local(norm, mesh, [tensor.Replicate()], run_check=False))
    return model


@pytest.mark.ddp(world_size=2)
def test_a_tensor_parallel_model_holds(ddp):
    """The bias of a row-wise layer and the weight of the norm are copies; a plain bias is neither copy nor shard."""
    assert assert_replicas_identical(sharded_layers(ddp, norm=torch.ones(4))) == 2


@pytest.mark.ddp(world_size=2)
def test_a_plain_model_is_compared_as_a_whole(ddp):
    """Parameters and buffers; gradients, where there are some."""
    model = ddp.wrap(nn.Sequential(net(seed=0), nn.BatchNorm1d(2)))
    assert assert_replicas_identical(model) == 9
    assert ddpcheck.assert_parameters_identical(model) == 6
    model.module[0][0].requires_grad_(False)
    model.module(torch.ones(3, 4)).sum().backward()
    assert assert_gradients_identical(model) == 4


@pytest.mark.ddp(world_size=2)
def test_a_copy_that_is_none(ddp):
    """A tensor that is declared to be a copy was made by each rank for itself."""
    found = violation(assert_replicas_identical, sharded_layers(ddp, norm=torch.full((4,), 1.0 + ddp.rank)))
    assert (found.subject, found.ranks, found.count) == ("2.weight", (1,), 1)
    assert "1 of 2 tensors that several ranks hold to differ from rank 0's on rank 1" in found.found


@pytest.mark.ddp(world_size=2)
def test_a_model_of_shards_alone_is_not_held(ddp):
    """Nothing in it is held by two ranks: the assertion says that it has compared nothing."""
    model = net(seed=0)
    fsdp.fully_shard(model, mesh=ddp.mesh())
    found = violation(assert_replicas_identical, model)
    assert found.found == "no tensor that is declared to be the same on two ranks or more: nothing was checked"
    assert "nothing for this assertion to compare" in found.advice


@pytest.mark.ddp(world_size=4)
def test_ddp_over_one_dimension_of_a_mesh(ddp):
    """The parts of a tensor-parallel model are copies along the wrapper's dimension alone."""
    mesh = ddp.mesh(2, 2, names=("dp", "tp"))
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    parallel.parallelize_module(inner, mesh["tp"], {"0": parallel.ColwiseParallel(), "1": parallel.RowwiseParallel()})
    model = DistributedDataParallel(inner, device_mesh=mesh["dp"])
    first = next(model.parameters())  # torch takes it from the module at the first forward
    assert_replicas_identical(model)
    model(torch.ones(3, 4) * (1 + ddp.rank // 2)).sum().backward()
    assert_gradients_identical(model)
    if ddp.rank == 2:
        with torch.no_grad():
            first.add_(1)
    found = violation(assert_replicas_identical, model)
    assert (found.ranks, found.subject) == ((2,), "0.weight")
    assert "to differ from rank 0's on rank 2" in found.found
