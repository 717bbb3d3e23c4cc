"""Ways to write a checkpoint over the one before: right ones, and such as lose it to a kill at some moment."""

from __future__ import annotations

import ctypes
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NAME = "checkpoint.pt"


class Training(NamedTuple):
    """A small training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer


def build(wrap: Callable[[nn.Module], nn.Module]) -> Training:
    model = wrap(nn.Linear(20, 4))
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def step(training: Training) -> None:
    training.optimizer.zero_grad()
    training.model(torch.randn(4, 20)).square().mean().backward()
    training.optimizer.step()


def state_of(training: Training) -> dict[str, Any]:
    model = training.model.module if isinstance(training.model, DistributedDataParallel) else training.model
    return {"model": model.state_dict(), "optimizer": training.optimizer.state_dict()}


def put_back(training: Training, state: dict[str, Any]) -> None:
    model = training.model.module if isinstance(training.model, DistributedDataParallel) else training.model
    model.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])


def load(training: Training, path: Path) -> None:
    """Of whatever the savers below have written: a file, or a folder that a pointer names."""
    pointer = path.parent / "latest.json"
    if pointer.exists():
        path = path.parent / json.loads(pointer.read_text())
    if path.is_dir():
        put_back(training, {p.stem: torch.load(p, map_location="cpu", weights_only=True) for p in path.glob("*.pt")})
    else:
        put_back(training, torch.load(path, map_location="cpu", weights_only=True))


class Saver(NamedTuple):
    """One way to save."""

    save: Callable[[Training, Path], None]
    safe: bool
    lost_at: str = ""
    """How the first moment begins at which the checkpoint is lost so that a load fails."""


def by_rank_0(write: Callable[[dict[str, Any], Path], None]) -> Callable[[Training, Path], None]:
    """A save on rank 0 that all wait for."""

    def save(training: Training, path: Path) -> None:
        if dist.get_rank() == 0:
            write(state_of(training), path)
        dist.barrier()

    return save


def by_rank_0_once_rank_1_is_ready(
    write: Callable[[dict[str, Any], Path], None],
) -> Callable[[Training, Path], None]:
    """A save that no rank can make alone: rank 0 waits for a word of rank 1."""

    def save(training: Training, path: Path) -> None:
        word = torch.zeros(1)
        if dist.get_rank() == 1:
            dist.send(word, dst=0)
        else:
            dist.recv(word, src=1)
            write(state_of(training), path)
        dist.barrier()

    return save


def in_place(state: dict[str, Any], path: Path) -> None:
    torch.save(state, path)


def pickled_in_place(state: dict[str, Any], path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(state, file, _use_new_zipfile_serialization=False)


def renamed(state: dict[str, Any], path: Path) -> None:
    draft = path.with_suffix(".draft")
    torch.save(state, draft)
    os.replace(draft, path)


def flushed_and_renamed(state: dict[str, Any], path: Path) -> None:
    draft = path.with_suffix(".draft")
    with open(draft, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def removed_first(state: dict[str, Any], path: Path) -> None:
    draft = path.with_suffix(".draft")
    torch.save(state, draft)
    if path.exists():
        path.unlink()
    os.rename(draft, path)


def copied_over(state: dict[str, Any], path: Path) -> None:
    draft = path.with_suffix(".draft")
    torch.save(state, draft)
    shutil.copyfile(draft, path)
    draft.unlink()


def folder_then_pointer(state: dict[str, Any], path: Path) -> None:
    """A folder with a name of its own, and then a pointer that is replaced in one step."""
    number = len(list(path.parent.glob("step-*")))
    folder = path.parent / f"step-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, part in state.items():
        torch.save(part, folder / f"{name}.pt")
    draft = path.parent / "latest.draft"
    draft.write_text(json.dumps(folder.name))
    os.replace(draft, path.parent / "latest.json")


def pointer_before_folder(state: dict[str, Any], path: Path) -> None:
    """The same in the wrong order: the pointer names a folder that is not whole."""
    number = len(list(path.parent.glob("step-*")))
    folder = path.parent / f"step-{number}"
    folder.mkdir()
    draft = path.parent / "latest.draft"
    draft.write_text(json.dumps(folder.name))
    os.replace(draft, path.parent / "latest.json")
    for name, part in state.items():
        torch.save(part, folder / f"{name}.pt")


def two_files_in_place(state: dict[str, Any], path: Path) -> None:
    """Each part is renamed into place, and a kill between the two leaves parts of two checkpoints."""
    path.mkdir(exist_ok=True)
    for name, part in state.items():
        draft = path / f"{name}.draft"
        torch.save(part, draft)
        os.replace(draft, path / f"{name}.pt")


def pickled_pointer(state: dict[str, Any], path: Path) -> None:
    """Pickled by hand, in one write, beside the file."""
    draft = path.with_suffix(".draft")
    with open(draft, "wb") as file:
        pickle.dump({}, file)
    torch.save(state, draft)
    os.link(draft, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)
    draft.unlink()


def in_c(state: dict[str, Any], path: Path) -> None:
    """As a library in C or Rust writes: the interpreter is told of nothing."""
    data = io.BytesIO()
    torch.save(state, data)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(os.fsencode(path), b"wb"))
    libc.fwrite(data.getvalue(), 1, len(data.getvalue()), file)
    libc.fclose(file)


def in_c_and_renamed(state: dict[str, Any], path: Path) -> None:
    draft = path.with_suffix(".draft")
    in_c(state, draft)
    os.replace(draft, path)


SAVERS = {
    "renamed": Saver(by_rank_0(renamed), safe=True),
    "flushed and renamed": Saver(by_rank_0(flushed_and_renamed), safe=True),
    "folder, then pointer": Saver(by_rank_0(folder_then_pointer), safe=True),
    "linked and renamed": Saver(by_rank_0(pickled_pointer), safe=True),
    "in C, and renamed": Saver(by_rank_0(in_c_and_renamed), safe=True),
    "in C": Saver(by_rank_0(in_c), safe=False, lost_at="after 0 of "),
    "in place": Saver(by_rank_0(in_place), safe=False, lost_at="after 0 of "),
    "pickled in place": Saver(by_rank_0(pickled_in_place), safe=False, lost_at="after 0 of "),
    "removed first": Saver(by_rank_0(removed_first), safe=False, lost_at="just before renaming checkpoint.draft"),
    "copied over": Saver(by_rank_0(copied_over), safe=False, lost_at="after 0 of "),
    "pointer before folder": Saver(by_rank_0(pointer_before_folder), safe=False, lost_at="just before opening"),
    "two files, one by one": Saver(by_rank_0(two_files_in_place), safe=False, lost_at="just before opening"),
}
