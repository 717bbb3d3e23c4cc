"""Files that are written without a word to the interpreter: who writes them is found out by copies of the ranks."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from ddpcheck.vocabulary.model import Finding
from tests.checkpoints.savers import (
    Training,
    build,
    by_rank_0,
    by_rank_0_once_rank_1_is_ready,
    in_c,
    in_c_and_renamed,
    load,
    put_back,
    renamed,
    state_of,
    step,
)

pytestmark = pytest.mark.long

OPTIONS: dict[str, Any] = {"build": build, "step": step, "kills": 4}


def on_all_ranks(write: Callable[[dict[str, Any], Path], None]) -> Callable[[Training, Path], None]:
    """A save that every rank makes at one path."""

    def save(training: Training, path: Path) -> None:
        write(state_of(training), path)
        dist.barrier()

    return save


def found(save: Callable[[Training, Path], None], load: Callable[[Training, Path], None] = load) -> Finding:
    """What is told of this save: who writes is judged before any kill."""
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_atomic_save(save, load, **OPTIONS)
    (finding,) = caught.value.findings
    return finding


@pytest.mark.ddp(world_size=2)
def test_one_rank_writes_in_c(ddp):
    """One writer, beside the file: all holds, though no write was seen."""
    ddpcheck.assert_atomic_save(by_rank_0(in_c_and_renamed), load, **OPTIONS)


@pytest.mark.ddp(world_size=3)
def test_all_ranks_write_in_c(ddp):
    """All ranks write one path: told, with the file's name."""
    finding = found(on_all_ranks(in_c))
    assert (finding.check, finding.severity, finding.ranks) == ("checkpoint-single-writer", "error", (0, 1, 2))
    assert finding.subject == "file checkpoint.pt"
    assert "ranks 0-2 writing checkpoint.pt, out of the interpreter's sight" in finding.found


@pytest.mark.ddp(world_size=2)
def test_all_ranks_rename_what_they_write_in_c(ddp):
    """The drafts are gone, and the renaming was seen."""

    def write(state: dict[str, Any], path: Path) -> None:
        draft = path.with_suffix(f".{dist.get_rank()}")
        in_c(state, draft)
        os.replace(draft, path)

    assert found(on_all_ranks(write)).found.endswith("by the rename")


@pytest.mark.ddp(world_size=2)
def test_a_part_of_each_rank_in_c(ddp):
    """Each rank has a file of its own: one writer for each, and what is wrong is that it writes in place."""

    def save(training: Training, path: Path) -> None:
        in_c(state_of(training), path.with_name(f"part-{dist.get_rank()}.pt"))
        dist.barrier()

    def load_part(training: Training, path: Path) -> None:
        load(training, path.with_name(f"part-{dist.get_rank()}.pt"))

    assert found(save, load_part).check == "checkpoint-atomic-save"


@pytest.mark.ddp(world_size=2)
def test_a_memory_map(ddp):
    """What all ranks write by way of a memory map counts as well, beside what one of them writes in sight."""

    def save(training: Training, path: Path) -> None:
        numbers = path.with_name("numbers.bin")
        if dist.get_rank() == 0:
            torch.save(state_of(training), path)
        dist.barrier()
        descriptor = os.open(numbers, os.O_RDWR | os.O_CREAT)  # in sight, but as a lock or a marker is made
        os.ftruncate(descriptor, 8)
        with mmap.mmap(descriptor, 8) as mapped:
            mapped[:] = b"12345678"
        os.close(descriptor)
        dist.barrier()

    finding = found(save)
    assert (finding.check, finding.subject) == ("checkpoint-single-writer", "file numbers.bin")
    assert "out of the interpreter's sight" in finding.found


@pytest.mark.ddp(world_size=2)
def test_a_writer_that_needs_its_peers(ddp):
    """Where no copy can save alone, a warning says that the writer is not known."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ddpcheck.assert_atomic_save(by_rank_0_once_rank_1_is_ready(in_c), load, **OPTIONS)
    first, second = (str(one.message) for one in said)
    assert first.startswith("checkpoint-single-writer at risk: file checkpoint.pt")
    assert "checkpoint.pt written out of sight, and no copy of ranks 0 and 1 that could save" in first
    assert "NoPeer: a forked copy of a rank has nobody to send to" in first
    assert second.startswith("checkpoint-atomic-save at risk")


@pytest.mark.ddp(world_size=2)
def test_a_writer_that_no_copy_shows(ddp):
    """A file that is there once, beside one that rank 0 is seen to write, and that no copy leaves: not held."""
    rank = os.getpid()

    def save(training: Training, path: Path) -> None:
        if dist.get_rank() == 0:
            renamed(state_of(training), path)
            if os.getpid() == rank:  # as a process would that was there before, and is no part of a copy
                in_c({}, path.with_name("weights.bin"))
        dist.barrier()

    with pytest.warns(ddpcheck.AtRisk, match=r"checkpoint-single-writer at risk: file weights\.bin"):
        ddpcheck.assert_atomic_save(save, load, **OPTIONS)


@pytest.mark.ddp(world_size=2)
def test_one_draft_of_all_ranks(ddp):
    """All write it out of sight, and one renames it: it is gone by the end, and told all the same."""

    def save(training: Training, path: Path) -> None:
        draft = path.with_suffix(".draft")
        in_c(state_of(training), draft)
        dist.barrier()
        if dist.get_rank() == 0:
            os.replace(draft, path)
        dist.barrier()

    finding = found(save)
    assert (finding.check, finding.subject) == ("checkpoint-single-writer", "file checkpoint.draft")


@pytest.mark.ddp(world_size=2)
def test_one_writer_in_sight_and_one_out_of_it(ddp):
    """A file that rank 0 was seen to write has another writer, too."""

    def save(training: Training, path: Path) -> None:
        if dist.get_rank() == 0:
            torch.save(state_of(training), path)
        dist.barrier()
        if dist.get_rank() == 1:
            in_c(state_of(training), path)
        dist.barrier()

    finding = found(save)
    assert (finding.check, finding.ranks) == ("checkpoint-single-writer", (0, 1))


@pytest.mark.ddp(world_size=2)
def test_locks_and_markers(ddp):
    """What ranks make to keep each other out is no file of several writers, in sight or out of it."""

    def save(training: Training, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path.with_name("begun"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.close(os.open(path.with_name("checkpoint.lock"), os.O_CREAT | os.O_WRONLY))
        if dist.get_rank() == 0:
            in_c_and_renamed(state_of(training), path)
        dist.barrier()

    ddpcheck.assert_atomic_save(save, load, **OPTIONS)


# --- kills in the midst of what others write


def copied_by_another_program(training: Training, path: Path) -> None:
    draft = path.with_suffix(".draft")
    if dist.get_rank() == 0:
        torch.save(state_of(training), draft)
        subprocess.run(["sh", "-c", 'cat "$0" > "$1"; rm "$0"', draft, path], check=False)
    dist.barrier()


@pytest.mark.ddp(world_size=2)
def test_another_program_writes_in_place(ddp):
    """It is the one that a kill ends, and the rank goes on: what is left is no checkpoint."""
    finding = found(copied_by_another_program)
    assert finding.check == "checkpoint-atomic-save"
    assert "of checkpoint.pt" in finding.found


@pytest.mark.ddp(world_size=2)
def test_a_memory_map_in_place(ddp):
    """No kill comes into its midst: a warning says so, and it does not count as held."""

    def save(training: Training, path: Path) -> None:
        if dist.get_rank() == 0:
            data = io.BytesIO()
            torch.save(state_of(training), data)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
            os.ftruncate(descriptor, len(data.getvalue()))
            with mmap.mmap(descriptor, len(data.getvalue())) as mapped:
                mapped[:] = data.getvalue()
            os.close(descriptor)
        dist.barrier()

    with pytest.warns(ddpcheck.AtRisk, match=r"checkpoint-atomic-save at risk: file checkpoint\.pt"):
        ddpcheck.assert_atomic_save(save, load, **OPTIONS)


# --- reads out of sight


@pytest.mark.ddp(world_size=2)
def test_a_read_out_of_sight(ddp):
    """One file is read in sight, and the weights are not: nothing is known of when."""

    def save(training: Training, path: Path) -> None:
        if dist.get_rank() == 0:
            path.with_name("settings.json").write_text("{}")
            in_c_and_renamed(state_of(training), path)
        dist.barrier()

    def load_in_c(training: Training, path: Path) -> None:
        path.with_name("settings.json").read_text()
        data = io.BytesIO(subprocess.run(["cat", path], check=True, capture_output=True).stdout)
        put_back(training, torch.load(data, weights_only=True))

    with pytest.warns(ddpcheck.AtRisk, match=r"checkpoint-read-after-write at risk: load\(\)") as said:
        ddpcheck.assert_resume_equivalent(save, load_in_c, build=build, step=drawless, after=1)
    assert "load() to read checkpoint.pt in sight" in str(said[0].message)


def drawless(training: Training) -> None:
    """A step that draws nothing."""
    training.optimizer.zero_grad()
    training.model(torch.ones(4, 20)).square().mean().backward()
    training.optimizer.step()
