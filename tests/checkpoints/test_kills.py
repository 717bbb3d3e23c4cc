"""Kills planted in a save: what each way of saving leaves, moment by moment, known from what the save does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import ddpcheck
from ddpcheck.checkpoint_trials import folder_snapshots, planted_kills
from ddpcheck.checkpoint_trials.forked_copies import in_copy
from ddpcheck.evidence.planted_kills import Kill
from tests.checkpoints.savers import (
    NAME,
    SAVERS,
    Training,
    build,
    by_rank_0_once_rank_1_is_ready,
    load,
    put_back,
    renamed,
    state_of,
    step,
)

SAMPLE = {"renamed", "folder, then pointer", "in place", "pointer before folder"}
"""The ways of saving that are tried without --long."""


def rehearsed(
    save: Callable[[Path], object], path: Path, before: Path, wanted: int
) -> dict[str, tuple[planted_kills.Moment, Kill]]:
    """Every kill of one save over ``before``, and what is left of it."""

    def found() -> Any:
        return Path(path).read_bytes().hex()

    folder_snapshots.restore(path.parent, before)
    old = in_copy(found).said
    events, error = planted_kills.events_of(lambda: save(path))
    assert not error
    unseen = planted_kills.unseen(path.parent, before, events)
    new = in_copy(found).said
    result = {}
    for moment in planted_kills.moments(events, unseen, wanted):
        assert planted_kills.was_killed(planted_kills.plant(save, path, before, moment)), moment
        left = in_copy(found)
        kind = "raised" if left.said is None else "old" if left.said == old else "new" if left.said == new else "other"
        result[moment.words] = moment, Kill(moment=moment.words, left=kind)  # type: ignore[arg-type]
    return result


@pytest.mark.ddp(world_size=1)
@pytest.mark.long
def test_moments_of_a_save_in_place(ddp):
    """torch.save over the checkpoint: before it opens the file the old one is whole, at every byte it is torn."""
    before, path = ddp.tmp_path / "before" / NAME, ddp.tmp_path / "tried" / NAME
    before.parent.mkdir()
    torch.save({"weight": torch.zeros(300)}, before)

    found = rehearsed(lambda p: torch.save({"weight": torch.ones(300)}, p), path, before.parent, 20)

    assert len(found) == 20
    for words, (moment, kill) in found.items():
        if moment.bytes is None:
            assert kill.left == ("new" if "returned" in words else "old"), words
        else:
            assert kill.left == "other", words
            assert moment.bytes < before.stat().st_size
    assert found["just before opening checkpoint.pt"][1].left == "old"
    assert "after 0 of " in " ".join(found)


@pytest.mark.ddp(world_size=1)
def test_moments_of_a_save_that_renames(ddp):
    """A draft beside it and os.replace: the old one up to the rename, the new one from then on."""
    before, path = ddp.tmp_path / "before" / NAME, ddp.tmp_path / "tried" / NAME
    before.parent.mkdir()
    before.write_bytes(b"old" * 100)

    def save(to: Path) -> None:
        draft = to.with_suffix(".draft")
        with open(draft, "wb") as file:
            file.write(b"new" * 200)
        os.replace(draft, to)

    found = rehearsed(save, path, before.parent, 12)

    assert len(found) == 12
    assert {words for words, (_, kill) in found.items() if kill.left == "new"} == {"as soon as save() had returned"}
    assert found["just before renaming checkpoint.draft to checkpoint.pt"][1].left == "old"
    assert all(kill.left in ("old", "new") for _, kill in found.values())


@pytest.mark.ddp(world_size=1)
def test_what_is_left_after_a_kill_is_what_was_written(ddp):
    """A kill after so many bytes leaves a file of so many bytes: it is a kill, and no exception that cleans up."""
    path = ddp.tmp_path / "tried" / NAME
    before = ddp.tmp_path / "before"
    before.mkdir()

    def save(to: Path) -> None:
        try:
            with open(to, "wb", buffering=0) as file:
                for _ in range(10):
                    file.write(bytes(100))
        finally:
            to.unlink()

    path.parent.mkdir()
    events, error = planted_kills.events_of(lambda: save(path))
    assert (error, [event.doing for event in events]) == ("", ["opening checkpoint.pt", "removing checkpoint.pt"])
    amid = [moment for moment in planted_kills.moments(events, {}, 8) if moment.bytes is not None]
    assert len(amid) == 5
    for moment in amid:
        assert planted_kills.was_killed(planted_kills.plant(save, path, before, moment))
        assert path.stat().st_size == moment.bytes


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.long) for name in SAVERS]
)
@pytest.mark.few(2)
def test_ways_of_saving(ddp, name):
    """The correct ways hold; the others lose the checkpoint to some kill, and the finding names such a moment."""
    saver = SAVERS[name]
    options = {"build": build, "step": step, "kills": 14}
    if saver.safe:
        ddpcheck.assert_atomic_save(saver.save, load, **options)
        return
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_atomic_save(saver.save, load, **options)
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-atomic-save"
    assert finding.severity == "error"
    assert finding.ranks == (0,)
    assert f"killed {saver.lost_at}" in finding.found, finding.found


@pytest.mark.ddp(world_size=2)
def test_a_load_that_begins_anew_where_there_is_no_file(ddp):
    """A load that shrugs at a missing or broken file hides the loss: neither the old state nor the new one is found."""

    def lenient(training: Training, path: Path) -> None:
        try:
            load(training, path)
        except Exception:
            return

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_atomic_save(SAVERS["in place"].save, lenient, build=build, step=step, kills=8)
    assert "neither the old state nor the new one" in caught.value.findings[0].found


@pytest.mark.ddp(world_size=2)
def test_a_save_that_needs_its_peers_is_not_tried(ddp):
    """What a copy cannot do alone is said, as a warning, and no verdict is made up."""
    with pytest.warns(ddpcheck.AtRisk, match="nobody to send to or to receive from"):
        ddpcheck.assert_atomic_save(by_rank_0_once_rank_1_is_ready(renamed), load, build=build, step=step)


@pytest.mark.ddp(world_size=2)
def test_a_copy_leaves_the_rank_alone(ddp):
    """What a copy does to its memory, its collectives and its streams is not seen in the rank."""
    held = [1]

    def change() -> int:
        held.append(2)
        dist.barrier()  # over at once
        torch.manual_seed(3)
        return len(held)

    before = torch.get_rng_state()
    ending = in_copy(change)

    assert (ending.said, ending.error, ending.signal) == (2, "", None)
    assert held == [1]
    assert torch.equal(torch.get_rng_state(), before)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 2


@pytest.mark.ddp(world_size=1)
def test_how_copies_end(ddp):
    """An exception, an exit, a signal and a hang of a copy are told apart."""

    def fail() -> None:
        raise ValueError("so it is")

    assert in_copy(fail).error == "ValueError: so it is"
    assert in_copy(lambda: os.abort()).signal == 6
    assert in_copy(lambda: os._exit(3)).said is None
    assert "did not end within 0.2 s" in in_copy(threading.Event().wait, patience=0.2).error


# --- several ranks that write a part each


def save_parts_in_place(training: Training, path: Path) -> None:
    """Each rank replaces its own part: whole at any moment, and of two steps in between."""
    part = path.with_name(f"part-{dist.get_rank()}.pt")
    torch.save(state_of(training), part.with_suffix(".draft"))
    os.replace(part.with_suffix(".draft"), part)
    dist.barrier()


def load_part(training: Training, path: Path) -> None:
    put_back(training, torch.load(path.with_name(f"part-{dist.get_rank()}.pt"), map_location="cpu", weights_only=True))


def save_parts_and_point(training: Training, path: Path) -> None:
    """All parts go to a new folder, all ranks meet, and rank 0 points to it in one step."""
    latest = path.with_name("latest")
    name = f"step-{int(latest.read_text()[5:]) + 1 if latest.exists() else 0}"
    folder = path.with_name(name)
    folder.mkdir(exist_ok=True)
    torch.save(state_of(training), folder / f"part-{dist.get_rank()}.pt")
    dist.barrier()
    if dist.get_rank() == 0:
        path.with_name("latest.new").write_text(name)
        os.replace(path.with_name("latest.new"), latest)
    dist.barrier()


def load_pointed(training: Training, path: Path) -> None:
    folder = path.with_name(path.with_name("latest").read_text())
    put_back(training, torch.load(folder / f"part-{dist.get_rank()}.pt", map_location="cpu", weights_only=True))


@pytest.mark.ddp(world_size=[2, 3])
@pytest.mark.long
def test_parts_of_two_steps(ddp):
    """A kill when some ranks have replaced their part leaves parts of two checkpoints: told, with the moment."""
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_atomic_save(save_parts_in_place, load_part, build=build, step=step, kills=4)
    (finding,) = caught.value.findings
    assert finding.check == "checkpoint-atomic-save"
    others = "rank 1" if ddp.world_size == 2 else "ranks 1 and 2"
    assert finding.found == f"when rank 0 alone had saved: the new one on rank 0, the old state on {others}"


@pytest.mark.ddp(world_size=2)
@pytest.mark.long
def test_parts_that_one_rank_points_to(ddp):
    """Its twin: all parts are there before the pointer moves, and until then every rank finds the old ones."""
    ddpcheck.assert_atomic_save(save_parts_and_point, load_pointed, build=build, step=step, kills=4)
