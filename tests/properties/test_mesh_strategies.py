"""The strategies of meshes, placements and shardings, in properties of torch's own DTensors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st

import ddpcheck
from ddpcheck import strategies as ds

dtensors = pytest.importorskip("torch.distributed.tensor")
if not hasattr(dtensors, "DTensor"):
    pytest.skip("torch 2.5 and later have DTensor in torch.distributed.tensor", allow_module_level=True)

quick = settings(database=None, max_examples=30)
few = settings(database=None, max_examples=10)
SMALL = st.integers(-4, 4)
R, S0, S1 = dtensors.Replicate(), dtensors.Shard(0), dtensors.Shard(1)


def linear() -> torch.nn.Module:
    return torch.nn.Linear(3, 2)


# --- without ranks


@quick
@given(data=st.data(), world_size=ds.world_sizes(1, 16))
def test_meshes_have_all_ranks(data, world_size):
    """A name for each dimension, each another; no dimension smaller than asked for, where there are several."""
    drawn = data.draw(ds.meshes(world_size, min_side=2))
    assert math.prod(drawn.shape) == world_size
    assert drawn.names == ("dp", "shard", "tp")[: drawn.ndim]
    assert drawn.ndim == 1 or min(drawn.shape) > 1


@quick
@given(drawn=ds.placements(3, 2), partial=ds.placements(ds.DrawnMesh((2, 2), ("a", "b")), 0, partial=True))
def test_a_placement_for_each_dimension_of_the_mesh(drawn, partial):
    assert len(drawn) == 3
    assert set(drawn) <= {R, S0, S1}
    assert len(partial) == 2
    assert set(partial) <= {R, dtensors.Partial()}


@quick
@given(data=st.data(), some=st.booleans())
def test_shardings_have_the_names_of_the_module(data, some):
    """Of shared parameters one; all of them, unless some may be left."""
    module = torch.nn.Sequential(linear(), linear())
    module[1].weight = module[0].weight
    names = {"0.weight", "0.bias", "1.bias"}
    drawn = data.draw(ds.shardings(module, 1, some=some)).placements
    assert drawn.keys() <= names if some else drawn.keys() == names


@pytest.mark.parametrize(
    ("strategy", "condition", "shown", "smallest"),
    [
        (ds.meshes(4), lambda m: True, lambda m: (m.shape, m.names), ((4,), ("dp",))),
        (ds.meshes(4), lambda m: m.ndim > 1, lambda m: m.shape, (1, 4)),
        (ds.meshes(8, names=("a", "b")), lambda m: min(m.shape) > 1, lambda m: (m.shape, m.names), ((8,), ("a",))),
        (ds.placements(2, 2), lambda p: True, tuple, (R, R)),
        (ds.placements(2, 2), lambda p: p != (R, R), tuple, (R, S0)),
        (ds.placements(1, 2, partial=True), lambda p: p[0].is_partial(), tuple, (dtensors.Partial(),)),
        (ds.shardings(linear(), 1), lambda s: True, lambda s: s.placements, {"weight": (R,), "bias": (R,)}),
        (
            ds.shardings(linear(), 1, some=True),
            lambda s: "bias" not in s.placements,
            lambda s: s.placements,
            {"weight": (R,)},
        ),
    ],
)
def test_the_smallest(strategy, condition, shown, smallest):
    """One dimension, copies, all parameters alike."""
    found = find(strategy, condition, settings=settings(database=None, max_examples=2000, derandomize=True))
    assert shown(found) == smallest


WRONG = [
    {"world_size": 0},
    {"world_size": 2, "names": "dp"},
    {"world_size": 2, "names": ()},
    {"world_size": 2, "names": ("a", "a")},
    {"world_size": 2, "min_side": 0},
]


@pytest.mark.parametrize("given_", WRONG)
def test_bad_input(given_):
    with pytest.raises(ValueError, match="expected one rank or more, and a list of names, each another"):
        ds.meshes(**given_)


# --- in ranks


@pytest.mark.ddp(world_size=[2, 4])
@few
@given(data=st.data(), tensor=ds.tensors(torch.float32, min_dims=1, elements=SMALL))
def test_what_is_spread_comes_back(ddp, data, tensor):
    """Whatever the mesh and the placements, even or not."""
    mesh = data.draw(ds.meshes(ddp.world_size)).make(ddp.device)
    assert mesh.size() == ddp.world_size
    spread = dtensors.distribute_tensor(tensor, mesh, data.draw(ds.placements(mesh, tensor.ndim)))
    assert torch.equal(spread.full_tensor(), tensor)


@pytest.mark.ddp(world_size=2)
@few
@given(data=st.data(), tensor=ds.tensors(torch.float32, elements=SMALL))
def test_a_sum_that_is_still_to_be_made(ddp, data, tensor):
    """Along each dimension of the mesh that has one, each rank has a part of it."""
    mesh = data.draw(ds.meshes(2)).make(ddp.device)
    drawn = data.draw(ds.placements(mesh, 0, partial=True))
    parts = math.prod(mesh.size(dim) for dim, one in enumerate(drawn) if one.is_partial())
    assert torch.equal(dtensors.DTensor.from_local(tensor, mesh, drawn).full_tensor(), tensor * parts)


@pytest.mark.ddp(world_size=2)
@few
@given(data=st.data(), module=ds.modules(kinds=("linear", "frozen", "shared"), max_layers=3))
def test_a_sharded_module(ddp, data, module):
    """Its parameters are those that were drawn, on all ranks, shared and frozen as before."""
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    mesh = data.draw(ds.meshes(2)).make(ddp.device)
    sharding = data.draw(ds.shardings(module, mesh, some=True))
    after = dict(sharding.apply(module, mesh).named_parameters())
    assert after.keys() == before.keys()
    assert {name for name, parameter in after.items() if parameter.requires_grad} == trained
    for name, parameter in after.items():
        assert isinstance(parameter, dtensors.DTensor) == (name in sharding.placements)
        whole = parameter.full_tensor() if isinstance(parameter, dtensors.DTensor) else parameter
        assert torch.equal(whole, before[name])


@pytest.mark.ddp(world_size=4)
@few
@given(data=st.data(), drawn=ds.meshes(4, min_side=2))
def test_copies_are_what_is_declared_so(ddp, data, drawn):
    """The assertion compares as many tensors as lie in copies along some dimension of more than one rank."""
    mesh, module = drawn.make(ddp.device), linear()
    sharding = data.draw(ds.shardings(module, mesh))
    copies = sum(R in found for found in sharding.placements.values())
    sharding.apply(module, mesh)
    if copies:
        assert ddpcheck.assert_replicas_identical(module) == copies
    else:
        with pytest.raises(ddpcheck.Violation, match="nothing was checked"):
            ddpcheck.assert_replicas_identical(module)
