"""The stretches that all ranks have put on record around an assertion, side by side: judged as a script's run is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from ddpcheck import evidence as ev
from ddpcheck.evidence.recorded_save import Recorded
from ddpcheck.judging import failed_user_functions
from ddpcheck.judging.file_history import Files
from ddpcheck.judging.world import Process, Rank, Stretch, World
from ddpcheck.vocabulary.model import Finding


class Recordings:
    """What the ranks have said; None for one that did not come."""

    def __init__(self, facts: Sequence[Any]) -> None:
        self.said = [None if fact is None else msgspec.convert(fact, Recorded) for fact in facts]
        self.files = Files(world_of([one.evidence if one is not None else None for one in self.said]))
        self.raised: tuple[Finding, ...] = failed_user_functions.judge(
            [one.failure if one is not None else None for one in self.said]
        )
        """That a function of the user's has raised: reported before anything else."""

    @property
    def everyone(self) -> tuple[int, ...]:
        return tuple(range(len(self.said)))

    @property
    def known(self) -> list[Recorded]:
        return [one for one in self.said if one is not None]


def world_of(evidence: Sequence[bytes | None]) -> World:
    """The ranks' records side by side; a rank that did not come is missing."""
    ranks = []
    for data in evidence:
        if data is not None:
            process = Process()
            process.add(ev.Reader().feed(data))
            joined = process.last(ev.Joined)
            assert joined is not None
            ranks.append(Rank(Stretch(process, joined, 0, math.inf)))
    return World(ranks, len(evidence))
