"""Timelines of simulated trainings, without processes: the records go straight into the ranks of a world."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Process, Rank, Stretch, World
from ddpcheck.report.timeline.made_from_evidence import timeline
from ddpcheck.report.timeline.timeline import KINDS, Timeline
from ddpcheck.vocabulary.model import CallSite, Finding
from tests.simulated_evidence import Training, records


def process(name: str, written: Iterable[ev.Record]) -> Process:
    """A process that has written this."""
    found = Process(name)
    found.add(written)
    return found


def world(training: Training) -> World:
    """The ranks of a simulated training."""
    ranks = []
    for number in training.only or range(training.ranks):
        made = process(f"p{number}", records(training, number))
        joined = made.last(ev.Joined)
        assert joined is not None
        ranks.append(Rank(Stretch(made, joined, 0, math.inf)))
    return World(ranks, training.ranks)


def made(training: Training, findings: Sequence[Finding] = (), **more: int) -> Timeline:
    """Its timeline."""
    return timeline([world(training)], (), findings=findings, **more)


def finding(line: int = 6, **more: object) -> Finding:
    """One about a line of the simulated program."""
    given = {
        "check": "gradient-sync", "ranks": (1,), "subject": "net.weight", "expected": "the same", "found": "another",
        "advice": "Treat them alike.", "where": CallSite(file="train.py", line=line, function="main"), **more,
    }  # fmt: skip
    return Finding(**given)


def of_kind(timeline: Timeline, lane: int, kind: str) -> list[int]:
    """The beginnings of a lane's events of one kind."""
    return [event.start for event in timeline.lanes[lane].events if event.kind == KINDS.index(kind)]
