"""Two stages of a pipeline that begin with one and the same table, and train each its own copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import prod
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import parameter_history
from ddpcheck.judging.meetings_by_hand import may_meet
from ddpcheck.judging.tensor_kinds import shape_of
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding

FEW = 16
"""Elements below which equal numbers may be a coincidence."""


class _Stage(NamedTuple):
    """A rank of a pipeline with all that it trains."""

    rank: Rank
    models: list[ev.Model]

    @property
    def drawn(self) -> list[tuple[ev.Model, ev.Held]]:
        """Its matrices of numbers that are not all the same."""
        return [
            (model, one)
            for model in self.models
            for one in model.held
            if not (one.buffer or one.filled or one.same_as)
            and one.layout is None
            and len(shape := shape_of(one.kind)) > 1
            and prod(shape) >= FEW
            and one.digest not in (b"", ev.ABSENT, ev.UNSEEN)
        ]

    @property
    def form(self) -> list[tuple[str, str]]:
        """The names and shapes of its parameters: stages have others, and copies of one model the same."""
        return sorted((one.name, one.kind) for model in self.models for one in model.held if not one.buffer)


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare, stage by stage, what they begin with: how many pairs of one table were compared, and those that diverge.

    One table alone has the same numbers in two stages of which all else was drawn
    otherwise: it was copied, or loaded twice.
    """
    checked, findings = 0, []
    for stages in _pipelines(world):
        for one, other in combinations(stages, 2):
            pair = _shared(one, other)
            if pair is None:
                continue
            mine, theirs = (
                {
                    step.number: (step, digest)
                    for step, digest in parameter_history.after_steps(of.rank, m.model, h.name)
                }
                for of, (m, h) in zip((one, other), pair, strict=True)
            )
            common = sorted(mine.keys() & theirs.keys())
            checked += bool(common)
            if any(may_meet(of.rank, m.model, h.name) for of, (m, h) in zip((one, other), pair, strict=True)):
                continue
            if common and not any(mine[number][1] == theirs[number][1] for number in common):
                findings.append(_finding(one, other, pair, mine[common[0]][0], len(common)))
    return checked, findings


Pair = tuple[tuple[ev.Model, ev.Held], tuple[ev.Model, ev.Held]]


def _shared(one: _Stage, other: _Stage) -> Pair | None:
    """The one matrix that both have."""
    if one.form == other.form:
        return None
    pairs = [
        (mine, its) for mine in one.drawn for its in other.drawn
        if (mine[1].kind, mine[1].digest) == (its[1].kind, its[1].digest)
    ]  # fmt: skip
    return pairs[0] if len(pairs) == 1 else None


def _pipelines(world: World) -> Iterator[list[_Stage]]:
    """The ranks that hold stages of one pipeline: as is declared, or as they send each other activations."""
    stages = {}
    for rank in world:
        models = rank.of(ev.Model)
        if models:
            stages[rank.rank] = _Stage(rank, models)
    declared = {one.pipeline for _, one in world.of(ev.Parallelised) if one.stage is not None}
    for ranks in declared or _sent(world):
        mine = [stages[number] for number in ranks if number in stages]
        if len(mine) == len(ranks) > 1:
            yield mine


def _sent(world: World) -> set[tuple[int, ...]]:
    """Sets of ranks that send each other something at every step, both ways, and share none of it beyond."""
    found: set[frozenset[int]] = set()
    for rank in world:
        peers = [call.peer for call in rank.of(ev.Call) if call.op in ev.PAIRWISE]
        for peer in set(peers):
            if peer is not None and peers.count(peer) >= 2 * len(rank.of(ev.Step)) > 0:
                mine = frozenset((rank.rank, peer))
                apart = [one for one in found if not one & mine]
                found = {*apart, mine.union(*(one for one in found if one & mine))}
    return {tuple(sorted(one)) for one in found}


def _finding(one: _Stage, other: _Stage, pair: Pair, step: ev.Step, times: int) -> Finding:
    (model, first), (_, second) = pair
    return Finding(
        rule="diverging-stage-copies",
        severity="warning",
        ranks=(one.rank.rank, other.rank.rank),
        subject=second.name,
        step=step.number,
        expected=f"{first.name} and {second.name}, which are the same numbers when training begins on two stages of a "
        "pipeline whose other weights are not, to be equal after every step",
        found=f"{first.name} (rank {one.rank.rank}) and {second.name} (rank {other.rank.rank}) to differ after each of "
        f"{times} steps that were looked at, from step {step.number} on",
        cause="one table serves both ends of the model, and each copy gets the gradient of its own use alone",
        advice="Add up the gradients of both copies over their ranks before each step; where the two are meant to go "
        "their own ways, accept this.",
        where=one.rank.where(step.site),
        links=(f"model {model.model}",),
    )
