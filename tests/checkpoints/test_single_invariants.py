"""The invariants of checkpoints one by one, each with a fault and its twin."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddpcheck
from fixtures import s0_basic
from tests.checkpoints.asserting import loading, saved, violated

# --- one rank writes


@pytest.mark.ddp(world_size=[1, 2])
def test_one_rank_writes(ddp):
    """Rank 0 alone writes, in one file or several."""
    model = ddp.wrap(s0_basic.build_model(seed=0))

    def save() -> None:
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), ddp.tmp_path / "a.pt")
            (ddp.tmp_path / "b.json").write_text("{}")

    ddpcheck.assert_single_writer(save)


@pytest.mark.ddp(world_size=2)
def test_each_rank_writes_its_own(ddp):
    """A shard for each rank, with the rank in its name, is one writer for each file."""
    ddpcheck.assert_single_writer(lambda: torch.save(torch.zeros(2), ddp.tmp_path / f"shard-{ddp.rank}.pt"))


@pytest.mark.ddp(world_size=3)
def test_all_ranks_write_one_file(ddp):
    """All ranks write one path; the ranks and the file are named."""
    finding = violated(ddpcheck.assert_single_writer, lambda: torch.save(torch.zeros(2), ddp.tmp_path / "model.pt"))
    assert finding.check == "checkpoint-single-writer"
    assert finding.ranks == (0, 1, 2)
    assert "model.pt" in finding.subject


@pytest.mark.ddp(world_size=2)
def test_two_ranks_write_a_text(ddp):
    """Files of other kinds count as well."""
    finding = violated(ddpcheck.assert_single_writer, lambda: (ddp.tmp_path / "log.json").write_text("{}"))
    assert "log.json" in finding.subject


# --- whole before it is read


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("how", ["barrier", "all_reduce", "group", "broadcast"])
def test_ways_of_waiting(ddp, how):
    """Whatever makes the readers wait for the writer is order enough."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = ddp.tmp_path / "model.pt"
    group = dist.new_group() if how == "group" else None
    wait = {
        "barrier": lambda: dist.barrier(),
        "all_reduce": lambda: dist.all_reduce(torch.zeros(1)),
        "group": lambda: dist.barrier(group=group),
        "broadcast": lambda: dist.broadcast(torch.zeros(1), src=0),
    }[how]

    def save() -> None:
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), path)
        wait()

    ddpcheck.assert_read_after_write(save, loading(path, model))


@pytest.mark.ddp(world_size=2)
def test_no_waiting(ddp):
    """Without a barrier the race is told, though the file is whole before anybody reads it."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = saved(ddp, model)  # so that the load goes well

    def save() -> None:
        if dist.get_rank() == 0:
            draft = path.with_suffix(".draft")
            torch.save(model.module.state_dict(), draft)
            draft.replace(path)

    finding = violated(ddpcheck.assert_read_after_write, save, loading(path, model))
    assert finding.check == "checkpoint-read-after-write"
    assert finding.ranks == (1,)


@pytest.mark.ddp(world_size=2)
def test_waiting_before_the_save(ddp):
    """A barrier at the wrong end orders nothing; one collective in the wrong direction neither."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = saved(ddp, model)

    def save() -> None:
        dist.barrier()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), path.with_suffix(".draft"))
            path.with_suffix(".draft").replace(path)
        dist.broadcast(torch.zeros(1), src=1)

    assert violated(ddpcheck.assert_read_after_write, save, loading(path, model)).ranks == (1,)


@pytest.mark.ddp(world_size=2)
def test_removed_before_the_last_read(ddp):
    """A file that is taken away while another rank may still read it is told; after a barrier it is not."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = saved(ddp, model)

    def load(wait: bool) -> None:
        loading(path, model)()
        if dist.get_rank() == 0:
            if wait:
                dist.barrier()
            path.unlink()
        elif wait:
            dist.barrier()

    ddpcheck.assert_read_after_write(dist.barrier, lambda: load(wait=True))
    saved(ddp, model)

    def racing() -> None:
        if dist.get_rank() == 1:
            loading(path, model)()
            done.mkdir()
        else:
            while not os.access(done, os.F_OK):  # the race goes well, and nothing of that is on record
                pass
            path.unlink()

    done = ddp.tmp_path / "done"
    finding = violated(ddpcheck.assert_read_after_write, dist.barrier, racing)
    assert finding.ranks == (0,)
    assert "to stay until every rank has read it" in finding.expected


# --- everything is loaded


@pytest.mark.ddp(world_size=2)
def test_all_is_loaded(ddp):
    """A load of everything holds, and leaves what was saved."""
    model = ddp.wrap(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    path = saved(ddp, model)
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}

    ddpcheck.assert_load_complete(loading(path, model), model)

    torch.testing.assert_close(dict(model.module.state_dict()), before, rtol=0, atol=0)


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("left_out", ["0.bias", "1.running_var", "1.num_batches_tracked"])
def test_one_thing_is_left_out(ddp, left_out):
    """With strict=False what is missing stays as it was: told by its name, parameter or buffer."""
    model = ddp.wrap(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))

    def load() -> None:
        state = torch.load(path, map_location="cpu", weights_only=True)
        del state[left_out]
        model.module.load_state_dict(state, strict=False)

    path = saved(ddp, model)
    finding = violated(ddpcheck.assert_load_complete, load, model)
    assert finding.check == "checkpoint-load-complete"
    assert finding.subject.endswith(left_out)
    assert finding.count == 1
    assert finding.ranks == (0, 1)


class Numbers(nn.Module):
    """A parameter, and buffers of every kind of number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(10, 4))
        kinds = [torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.uint8, torch.bool]
        for kind in kinds:
            self.register_buffer(f"of_{str(kind).removeprefix('torch.')}", torch.ones(10, 4, dtype=kind))
        self.register_buffer("arrived", torch.tensor(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight.sum() * x


@pytest.mark.ddp(world_size=2)
def test_a_part_of_a_tensor_is_left_out(ddp):
    """Rows that a smaller checkpoint does not have are as before: told for every type, with their number."""
    model = Numbers()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def load(less: str = "") -> None:
        for name, tensor in model.state_dict().items():
            if tensor.ndim:
                rows = slice(7 if name == less else None)
                tensor[rows] = state[name][rows]
            else:
                tensor.copy_(state[name])

    for name, tensor in state.items():
        if tensor.ndim:
            finding = violated(ddpcheck.assert_load_complete, lambda name=name: load(name), model)
            assert (finding.subject, finding.ranks) == (f"Numbers.{name}", (0, 1))
            assert finding.found == f"12 of 40 elements of Numbers.{name} untouched by the load on rank 0"
    ddpcheck.assert_load_complete(load, model)


@pytest.mark.ddp(world_size=2)
def test_a_real_part_alone(ddp):
    """A complex tensor of which the load leaves out the other part."""
    model = Numbers()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def load() -> None:
        for name, tensor in model.state_dict().items():
            (tensor.real if tensor.is_complex() else tensor).copy_(state[name].real)

    assert violated(ddpcheck.assert_load_complete, load, model).subject == "Numbers.of_complex64"


@pytest.mark.ddp(world_size=2)
def test_values_that_are_like_marks(ddp):
    """Counters, flags and weights of 0 and 1, into a new model and into one that has them already."""
    path = ddp.tmp_path / "model.pt"
    trained = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    trained[1].num_batches_tracked += 1
    torch.nn.init.ones_(trained[0].weight)
    torch.nn.init.zeros_(trained[0].bias)
    if ddp.rank == 0:
        torch.save(trained.state_dict(), path)
    dist.barrier()
    for model in (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), trained):
        wrapped = ddp.wrap(model)
        ddpcheck.assert_load_complete(loading(path, wrapped), wrapped)


@pytest.mark.ddp(world_size=2)
def test_tensors_of_the_checkpoint_itself(ddp):
    """A load that puts them in the place of the module's own (assign=True) has them as they were afterwards."""
    module = Numbers()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    ddpcheck.assert_load_complete(lambda: module.load_state_dict(state, assign=True), module)
    assert all(torch.equal(tensor, torch.ones_like(tensor)) for tensor in state.values())
    partial = {name: tensor for name, tensor in state.items() if name != "weight"}
    finding = violated(
        ddpcheck.assert_load_complete,
        lambda: module.load_state_dict({**partial, "weight": module.weight.detach()}, assign=True),
        module,
    )
    assert finding.subject == "Numbers.weight"


@pytest.mark.ddp(world_size=2)
def test_tensors_that_cannot_be_overwritten(ddp):
    """An expanded buffer takes no values: a warning names it, and the others are looked at."""
    model = ddp.wrap(nn.Linear(2, 2))
    model.module.register_buffer("rows", torch.arange(4.0).expand(3, -1))
    state = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}

    def load(less: str = "rows") -> None:
        for name, tensor in model.module.state_dict().items():
            if name not in ("rows", less):
                tensor.copy_(state[name])

    with pytest.warns(ddpcheck.AtRisk, match="Linear.rows"):
        ddpcheck.assert_load_complete(load, model)
    assert violated(ddpcheck.assert_load_complete, lambda: load("bias"), model).subject == "Linear.bias"


@pytest.mark.ddp(world_size=2)
def test_one_rank_loads(ddp):
    """A load on rank 0 alone, after the wrap, leaves rank 1 with its noise."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = saved(ddp, model)
    finding = violated(ddpcheck.assert_load_complete, lambda: loading(path, model)() if ddp.rank == 0 else None, model)
    assert finding.ranks == (1,)
    assert finding.count == 4


# --- where nothing is done, or something fails


@pytest.mark.ddp(world_size=2)
def test_nothing_is_written(ddp):
    """Of a save that writes nothing, or in no way that is seen, a warning says so; it does not count as held."""
    with pytest.warns(ddpcheck.AtRisk, match="no rank writing one"):
        ddpcheck.assert_single_writer(lambda: None)


@pytest.mark.ddp(world_size=2)
def test_nothing_is_read(ddp):
    """Where no read is seen, nothing is known of its order: a warning says so, and it counts as not checked."""
    path = ddp.tmp_path / "model.pt"

    def save() -> None:
        if dist.get_rank() == 0:
            torch.save({}, path)

    with pytest.warns(ddpcheck.AtRisk, match="no rank reading it"):
        ddpcheck.assert_read_after_write(save, lambda: None)


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("which", ["read after write", "map_location", "complete"])
def test_a_load_that_raises(ddp, which):
    """It is told, whatever was to be judged of it."""
    model = ddp.wrap(s0_basic.build_model(seed=0))

    def load() -> None:
        raise ValueError("so it is")

    assertion = {
        "read after write": lambda: ddpcheck.assert_read_after_write(lambda: None, load),
        "map_location": lambda: ddpcheck.assert_map_location(load, model),
        "complete": lambda: ddpcheck.assert_load_complete(load, model),
    }[which]
    with pytest.raises(ddpcheck.Violation) as caught:
        assertion()
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-load-complete"
    assert finding.found == "ValueError: so it is on ranks 0 and 1"
