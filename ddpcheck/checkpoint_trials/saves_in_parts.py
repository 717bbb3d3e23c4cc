"""Saves in which several ranks write a part each: what is found where only some of them had come so far.

Collectives cut a save into stages: no rank is in a later stage while another
has not ended the one before. So within a stage any of its writers may have
written or not, and all that belongs to earlier stages is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ddpcheck.checkpoint_trials import folder_snapshots, planted_kills
from ddpcheck.checkpoint_trials.forked_copies import in_copy
from ddpcheck.evidence.planted_kills import Kill


class Stage(NamedTuple):
    """A stage in which more ranks than one write."""

    earlier: list[Path]
    """What each rank had written by its beginning."""
    writers: dict[int, Path]
    """What each that writes in it has written by its end."""


def keep(folder: Path, place: Path, rank: int) -> None:
    """Keep a copy of what this rank has written so far, as its next stage."""
    number = len(list(place.glob(f"stage-{rank}-*")))
    folder_snapshots.restore(place / f"stage-{rank}-{number}", folder)


def stages(before: Path, place: Path, world_size: int) -> list[Stage]:
    """The stages in which more ranks than one write; none where the ranks have not gone through equally many."""
    kept = [
        [place / f"stage-{rank}-{n}" for n in range(len(list(place.glob(f"stage-{rank}-*"))))]
        for rank in range(world_size)
    ]
    if len({len(one) for one in kept}) != 1:
        return []
    found = []
    for number in range(len(kept[0])):
        begun = [one[number - 1] if number else before for one in kept]
        writers = {r: one[number] for r, one in enumerate(kept) if folder_snapshots.changes(begun[r], one[number])}
        if len(writers) > 1:
            found.append(Stage(begun, writers))
    return found


def tried(stages: list[Stage], before: Path, folder: Path, load: Callable[[], dict[str, str]]) -> list[Kill]:
    """What this rank loads where one writer of a stage has written, and where one has not."""
    folder_snapshots.restore(folder, before)
    old = in_copy(load)
    found = []
    for stage in stages:
        folder_snapshots.overlay(folder, before, [*stage.earlier, *stage.writers.values()])
        new = in_copy(load)
        for rank, own in stage.writers.items():
            others = [one for other, one in stage.writers.items() if other != rank]
            for words, saved in (
                (f"when rank {rank} alone had saved", [own]),
                (f"when rank {rank} alone had not saved", others),
            ):
                folder_snapshots.overlay(folder, before, [*stage.earlier, *saved])
                left = in_copy(load)
                error = "" if left.said is not None else left.why
                found.append(planted_kills.verdict(words, left.said or {}, error, old.said or {}, new.said or {}))
    return found
