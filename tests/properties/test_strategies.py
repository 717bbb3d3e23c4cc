"""The strategies, in properties of torch's own sampler, loader, collectives and DistributedDataParallel."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from hypothesis import assume, find, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import ddpcheck
from ddpcheck import strategies as ds

quick = settings(database=None, max_examples=30)
few = settings(database=None, max_examples=15)


# --- sizes and samplers, without ranks


@quick
@given(drawn=ds.sampler_settings())
def test_shards_of_torch_s_sampler(drawn):
    """Shards are of one size; padded, they cover all samples; dropping, they share none."""
    shards = drawn.shards()
    assert len(shards) == drawn.world_size
    assert len({len(shard) for shard in shards}) == 1
    taken = [index for shard in shards for index in shard]
    if drawn.drop_last:
        assert len(set(taken)) == len(taken)
        assert drawn.size - len(taken) < drawn.world_size
    else:
        assert set(taken) == set(range(drawn.size))


@quick
@given(drawn=ds.sampler_settings(world_size=2, shuffle=True, drop_last=False))
def test_what_is_given_is_not_drawn(drawn):
    assert (drawn.world_size, drawn.shuffle, drawn.drop_last) == (2, True, False)


@quick
@given(size=ds.dataset_sizes(3, batch_size=2, min_value=2, max_value=20), drawn=ds.loader_settings(max_batch_size=4))
def test_batches_of_a_loader(size, drawn):
    """The number of batches is what a loader has."""
    assert 2 <= size <= 20
    assert len(DataLoader(range(size), **drawn.kwargs)) == drawn.batches(size)


@quick
@given(data=st.data(), world_size=ds.world_sizes(2, 5))
def test_sizes_that_are_not_equal(data, world_size):
    sizes = data.draw(ds.unequal_sizes(world_size, min_value=1, max_value=3))
    assert len(sizes) == world_size
    assert set(sizes) <= {1, 2, 3}
    assert len(set(sizes)) > 1


@pytest.mark.parametrize(
    ("strategy", "condition", "shown", "smallest"),
    [
        (ds.world_sizes(), lambda n: True, int, 1),
        (ds.dataset_sizes(4, 4), lambda n: n > 17, int, 18),
        (ds.unequal_sizes(3), lambda sizes: True, tuple, (0, 0, 1)),
        (
            ds.sampler_settings(),
            lambda s: s.size % s.world_size,
            lambda s: (s.size, s.world_size, s.shuffle),
            (1, 2, False),
        ),
        (ds.loader_settings(), lambda s: s.drop_last, lambda s: s.batch_size, 1),
        (ds.collectives(2), lambda found: len(found) > 1, repr, "[barrier(), barrier()]"),
        (ds.collectives(2, operations=["broadcast"]), lambda found: found[0].root, lambda found: found[0].shape, (1,)),
        (ds.tensors(torch.int32, (2,)), lambda t: t[0] > 2, torch.Tensor.tolist, [3, 0]),
        (ds.modules(), lambda m: isinstance(m[-1], torch.nn.BatchNorm1d), lambda m: (len(m), m.features), (2, 1)),
    ],
)
def test_the_smallest(strategy, condition, shown, smallest):
    """Strategies shrink to what is easiest to read."""
    found = find(strategy, condition, settings=settings(database=None, max_examples=2000, derandomize=True))
    assert shown(found) == smallest


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ds.dtypes(["odd"]), r"dtypes\(\['odd'\]\): there are floating, integer, bool, complex"),
        (lambda: ds.collectives(2, operations=["send"]), "there are barrier, broadcast"),
        (lambda: ds.collectives(2, operations=[]), "there are barrier, broadcast"),
        (lambda: ds.unequal_sizes(1).example(), "sizes can differ between two ranks or more"),
        (lambda: ds.modules(kinds=("conv",)).example(), "there are linear, relu"),
        (lambda: ds.Collective("send", 2).run(0), "'send' is no collective of these"),
    ],
)
@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
def test_bad_input(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_without_hypothesis():
    """One sentence says what is missing; what is broken in it is not called missing."""
    code = "import sys; sys.modules['hypothesis'] = None; import ddpcheck.strategies"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert "ddpcheck.strategies needs hypothesis, which is not installed: pip install" in last


# --- tensors


@quick
@given(tensor=ds.tensors())
def test_tensors_are_finite(tensor):
    if tensor.is_floating_point():
        assert torch.isfinite(tensor).all()
    assert tensor.ndim <= 3


@quick
@given(data=st.data(), dtype=ds.dtypes(["floating", "integer", "bool", "complex"]))
def test_tensors_have_their_dtype_and_shape(data, dtype):
    tensor = data.draw(ds.tensors(dtype, (2, 3), allow_nan=True))
    assert (tensor.dtype, tensor.shape) == (dtype, (2, 3))


# --- in ranks


@pytest.mark.ddp(world_size=[2, 3])
@few
@given(data=st.data())
def test_collectives(ddp, data):
    """Every rank ends up with what it should, whatever the order of collectives."""
    for collective in data.draw(ds.collectives(ddp.world_size)):
        collective.check(ddp.rank)


@pytest.mark.ddp(world_size=2)
@given(collective=ds.collectives(2, operations=["broadcast", "all_reduce", "scatter"], max_size=1, max_side=2))
@few
def test_a_wrong_collective_is_found(ddp, collective):
    """The check fires where a rank ends up with something else."""
    wrong = ds.Collective(**(vars(collective[0]) | {"world_size": 2}))
    object.__setattr__(wrong, "given", lambda rank, part=0: torch.full(wrong.shape, rank + 1).to(wrong.dtype))
    found = wrong.run(ddp.rank)
    object.__setattr__(wrong, "run", lambda rank, group=None: [tensor + 1 for tensor in found])
    with pytest.raises(AssertionError, match=f"on rank {ddp.rank}: expected "):
        wrong.check(ddp.rank)


@pytest.mark.ddp(world_size=2)
@few
@given(size=ds.dataset_sizes(2, 2), drawn=ds.loader_settings())
def test_torch_s_sampler_and_loader(ddp, size, drawn):
    """torch's own sampler and loader keep what they promise, for all sizes and settings."""
    data = torch.arange(size)
    loader = DataLoader(data, sampler=DistributedSampler(data), **drawn.kwargs)
    assume(drawn.batches(-(-size // 2)) > 0)
    ddpcheck.assert_batch_count(loader)
    if not drawn.drop_last:
        ddpcheck.assert_shards_partition(loader)


@pytest.mark.ddp(world_size=2)
@few
@given(module=ds.modules(kinds=("linear", "relu", "batchnorm", "frozen")))
def test_a_step_of_ddp(ddp, module):
    """Gradients agree for all modules, whatever each rank's batch is."""
    model = ddp.wrap(module)
    ddpcheck.assert_replicas_identical(model)
    model(module.inputs(3, seed=ddp.rank)).sum().backward()
    ddpcheck.assert_gradients_identical(model)


@pytest.mark.ddp(world_size=2)
@few
@given(batches=ds.unequal_batches(2, features=2))
def test_unequal_batches(ddp, batches):
    """All ranks know all batches, and the sum over them is exact."""
    assert batches[0].shape != batches[1].shape
    total = batches[ddp.rank].sum(0)
    dist.all_reduce(total)
    assert torch.equal(total, torch.cat(batches).sum(0))


@pytest.mark.ddp(world_size=2)
@few
@given(tensor=ds.tensors(ds.dtypes(["floating"]), min_dims=1))
def test_a_broadcast_keeps_all_bits(ddp, tensor):
    mine = tensor.clone() if ddp.rank == 0 else torch.zeros_like(tensor)
    dist.broadcast(mine, 0)
    assert torch.equal(mine, tensor)
