"""Files that are written without a word to the interpreter: who writes them is found out by copies of the ranks."""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from ddpcheck.model import Finding
from tests.checkpoints.savers import Training, build, by_rank_0, in_c, in_c_and_renamed, load, state_of, step

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
    assert "ranks 0-2 writing checkpoint.pt, in a way that the interpreter is not told of" in finding.found


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
    assert "in a way that the interpreter is not told of" in finding.found


@pytest.mark.ddp(world_size=2)
def test_a_writer_that_needs_its_peers(ddp):
    """Where no copy can save alone, a warning says that the writer is not known."""

    def save(training: Training, path: Path) -> None:
        own = torch.zeros(1)
        if dist.get_rank() == 1:
            dist.send(own, dst=0)
        else:
            dist.recv(own, src=1)
            in_c(state_of(training), path)
        dist.barrier()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ddpcheck.assert_atomic_save(save, load, **OPTIONS)
    first, second = (str(one.message) for one in said)
    assert first.startswith("checkpoint-single-writer at risk: file checkpoint.pt")
    assert "no rank seen writing checkpoint.pt" in first
    assert "NoPeer: a forked copy of a rank has nobody to send to" in first
    assert second.startswith("checkpoint-atomic-save at risk")
