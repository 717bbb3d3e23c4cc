"""The invariants of checkpoints one by one, each with a fault and its twin; and files that are no checkpoints."""

from __future__ import annotations

import functools
import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddpcheck
from ddpcheck.model import Finding
from fixtures import s0_basic
from tests.inner import InnerProject


def violated(assertion: Callable[..., None], *args: Any) -> Finding:
    """The one finding, which names a line of this file."""
    with pytest.raises(ddpcheck.Violation) as caught:
        assertion(*args)
    (finding,) = caught.value.findings
    assert finding.severity == "error"
    assert finding.where is not None
    assert os.path.abspath(finding.where.file) == __file__
    return finding


def saved(ddp: Any, model: nn.Module) -> Path:
    """A checkpoint of this model, written by rank 0 and there for all."""
    path = ddp.tmp_path / "model.pt"
    if ddp.rank == 0:
        torch.save(model.module.state_dict(), path)
    dist.barrier()
    return path


def loading(path: Path, model: nn.Module, **options: Any) -> Callable[[], object]:
    return lambda: model.module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True), **options)


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


@pytest.mark.ddp(world_size=2)
def test_one_rank_loads(ddp):
    """A load on rank 0 alone, after the wrap, leaves rank 1 with its noise."""
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = saved(ddp, model)
    finding = violated(ddpcheck.assert_load_complete, lambda: loading(path, model)() if ddp.rank == 0 else None, model)
    assert finding.ranks == (1,)
    assert finding.count == 4


# --- files that are no checkpoint of this model


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("loss,accuracy\n0.1,0.9\n")


def zip_of_texts(path: Path) -> None:
    path.unlink()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "no checkpoint")


def removed(path: Path) -> None:
    path.unlink()


def newer(path: Path) -> None:
    """The same checkpoint, as a torch of the future would number its format."""
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in entries.items():
            file.writestr(name, b"99\n" if name.endswith("/version") else data)


def pickled_list(path: Path) -> None:
    path.write_bytes(pickle.dumps([1, 2]))


def cut_off_pickle(path: Path) -> None:
    state = torch.load(path, weights_only=True)
    torch.save(state, path, _use_new_zipfile_serialization=False)
    cut_off(path)


def _changed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def rewrite(path: Path) -> None:
        state = torch.load(path, weights_only=True)
        change(state)
        torch.save(state, path)

    return rewrite


def other_model(path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), path)


BAD: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "cut off": (cut_off, ("cut off",)),
    "cut-off pickle": (cut_off_pickle, ("cut off",)),
    "empty": (empty, ("the file is empty",)),
    "text": (text, ("no file that torch.save has written",)),
    "zip of texts": (zip_of_texts, ("",)),
    "not there": (removed, ("there is no such file",)),
    "newer": (newer, ("newer format",)),
    "list": (pickled_list, ("",)),
    "key missing": (_changed(lambda s: s.pop("hidden.bias")), ("has no key 'hidden.bias'",)),
    "foreign key": (
        _changed(lambda s: s.update({"head.weight": torch.zeros(1)})),
        ("has a key 'head.weight' that the module has not",),
    ),
    "other size": (_changed(lambda s: s.update({"hidden.bias": torch.zeros(3)})), ("hidden.bias is of another size",)),
    "other model": (other_model, ("has no key 'hidden.weight'", "has a key 'weight'")),
}


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("kind", BAD)
def test_bad_files(ddp, kind):
    """Each is a clear failure that names the file, and the first key that differs where there is one."""
    spoil, words = BAD[kind]
    model = ddp.wrap(s0_basic.build_model(seed=0))
    path = saved(ddp, model)
    if ddp.rank == 0:
        spoil(path)
    dist.barrier()

    finding = violated(ddpcheck.assert_load_complete, loading(path, model), model)

    assert finding.check == "checkpoint-load-complete"
    assert finding.ranks == (0, 1)
    assert "model.pt" in finding.subject
    assert all(word in finding.message for word in words), finding.message
    assert finding.advice


STUCK = """
    import pytest, torch, ddpcheck
    import torch.distributed as dist

    @pytest.mark.ddp(world_size=3, timeout=300)
    def test_one_cannot_load(ddp):
        model = ddp.wrap(torch.nn.Linear(2, 1))
        own = ddp.tmp_path / f"own-{ddp.rank}.pt"
        torch.save(model.module.state_dict(), own)
        if ddp.rank == 2:
            own.write_bytes(own.read_bytes()[:100])

        def load():
            model.module.load_state_dict(torch.load(own))
            dist.barrier()

        ddpcheck.assert_load_complete(load, model)
"""


def test_a_bad_file_on_one_rank_holds_up_nobody(project: InnerProject) -> None:
    """One rank cannot load while the others wait for it in a collective: it is judged, and they are ended with it."""
    project.write("test_stuck.py", STUCK)

    ran = project.run("test_stuck.py")

    seen = ran["test_one_cannot_load"]
    assert seen.outcome == "failed"
    assert seen.text.startswith("rank 2 failed first")
    assert "checkpoint-load-complete violated: file " in seen.text
    assert "own-2.pt (rank 2)" in seen.text
    assert "the file is cut off" in seen.text
    assert seen.text.count(", and was stopped") == 2
    assert [rank["ending"] for rank in seen.ddp["ranks"]] == ["stopped", "stopped", "finished"]
    assert ran.seconds < 60


# --- functions that somebody holds from before


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
        warnings.simplefilter("ignore", DeprecationWarning)  # newer torch would rather have it compiled
        scripted = torch.jit.script(torch.nn.Linear(1, 1)) if how == "a scripted module" else None

    def save() -> None:
        scripted.save(path) if scripted is not None else Comm.put_down({"a": torch.zeros(1)}, path)

    assert violated(ddpcheck.assert_single_writer, save).ranks == (0, 1)
