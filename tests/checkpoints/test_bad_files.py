"""Files that are no checkpoint of this model: each is told by its name and by what is wrong with it."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddpcheck
from fixtures import s0_basic
from tests.checkpoints.asserting import loading, saved, violated
from tests.inner import InnerProject


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
    @pytest.mark.parametrize("which", ["complete", "map_location", "read_after_write"])
    def test_one_cannot_load(ddp, which):
        model = ddp.wrap(torch.nn.Linear(2, 1))
        own = ddp.tmp_path / f"own-{ddp.rank}.pt"
        torch.save(model.module.state_dict(), own)
        if ddp.rank == 2:
            own.write_bytes(own.read_bytes()[:100])

        def load():
            model.module.load_state_dict(torch.load(own, weights_only=True))
            dist.barrier()

        if which == "complete":
            ddpcheck.assert_load_complete(load, model)
        elif which == "map_location":
            ddpcheck.assert_map_location(load, model)
        else:
            ddpcheck.assert_read_after_write(lambda: None, load)
"""


@pytest.mark.long
def test_a_bad_file_on_one_rank_holds_up_nobody(project: InnerProject) -> None:
    """One rank cannot load while the others wait for it in a collective: it is judged, and they are ended with it."""
    project.write("test_stuck.py", STUCK)

    ran = project.run("test_stuck.py")

    for which in ("complete", "map_location", "read_after_write"):
        seen = ran[f"test_one_cannot_load[{which}]"]
        assert seen.outcome == "failed"
        assert seen.text.startswith("rank 2 failed first")
        assert "checkpoint-load-complete violated: file " in seen.text
        assert "own-2.pt (rank 2)" in seen.text
        assert "the file is cut off" in seen.text
        assert seen.text.count(", and was stopped") == 2
        assert [rank["ending"] for rank in seen.ddp["ranks"]] == ["stopped", "stopped", "finished"]
    assert ran.seconds < 60
