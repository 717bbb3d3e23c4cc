"""Claim 9 (S0): no rank may load before the save is complete."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from fixtures import s0_basic, s0_checkpoint


def until_there(path: Path) -> None:
    """Wait for a file without a word to anybody: what rank 1 does where luck is with it."""
    while not os.access(path, os.F_OK):
        pass


@pytest.mark.ddp(world_size=[2, 4])
def test_with_the_barrier_nothing_is_said(ddp):
    """The tutorial's own way: rank 0 saves, all meet, every rank loads."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    path = ddp.tmp_path / "model.pt"

    ddpcheck.assert_read_after_write(lambda: s0_checkpoint.save(model, path), lambda: s0_checkpoint.load(model, path))


@pytest.mark.ddp(world_size=[2, 4])
def test_without_it_the_race_is_told_where_it_went_well(ddp):
    """Nothing makes the others wait; they come late by luck, load a whole file, and it is told all the same."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    path, moved = ddp.tmp_path / "model.pt", ddp.tmp_path / "moved.pt"

    def save() -> None:
        s0_checkpoint.save(model, path, wait=False)
        if dist.get_rank() == 0:
            os.rename(path, moved)

    def load() -> None:
        until_there(moved)
        s0_checkpoint.load(model, moved)

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_read_after_write(save, load)
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-read-after-write"
    assert finding.ranks == tuple(range(1, ddp.world_size))
    assert "barrier" in finding.advice


@pytest.mark.ddp(world_size=2)
def test_a_slow_save_without_it_loses_the_race(ddp):
    """The save is slower than the load, made so: rank 1 finds half a file, and the race is told, not the file."""
    model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
    path, read = ddp.tmp_path / "model.pt", ddp.tmp_path / "read"
    half = ddp.tmp_path / "half"

    def save() -> None:
        if dist.get_rank() == 0:
            with open(path, "wb") as file:
                file.write(b"PK\x03\x04")
                file.flush()
                half.mkdir()
                until_there(read)
                torch.save(model.state_dict(), file)

    def load() -> None:
        if dist.get_rank() == 1:
            until_there(half)
            try:
                s0_checkpoint.load(model, path)
            finally:
                read.mkdir()

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_read_after_write(save, load)
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-read-after-write"
    assert finding.ranks == (1,)
