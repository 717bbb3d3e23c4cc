"""Are the shards of one model written to on all ranks between two steps, or on some of them alone?"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging.copies import aligned
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, ranks_text


class _Apart(NamedTuple):
    """The ranks on which all shards have changed before a step, and those on which none has."""

    number: int
    moved: list[Rank]
    stayed: list[Rank]


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare the ranks that a model is dealt out to, shard for shard of the same tensors.

    Where there is nothing to say, no parameters were compared: that shards move
    alike does not make them copies, which could be held to be equal.

    Who resets some rows of a table writes to those of one rank. So nothing is
    said unless all that a rank has was written to, and nothing that another has.
    """
    findings = []
    for optimizer in aligned(world, _among):
        broken: list[_Apart] = []
        for number, each in sorted(_looked(optimizer).items()):
            if len(each) < len(optimizer.ranks):
                continue
            shares = [
                (rank, len(wanted & set(each[place].moved)), len(wanted))
                for place, (rank, wanted) in enumerate(zip(optimizer.ranks, _own(optimizer), strict=True))
            ]
            moved = [rank for rank, its, every in shares if every and its == every]
            stayed = [rank for rank, its, every in shares if every and not its]
            if moved and stayed:
                broken.append(_Apart(number, moved, stayed))
        if broken and len(optimizer.described[0].parameters) > 1:
            findings.append(_finding(optimizer, broken))
    return len(findings), findings


def _among(rank: Rank, parameter: ev.Parameter) -> tuple[int, ...]:
    """The ranks of the mesh on which it is dealt out."""
    layout = parameter.layout
    if layout is None or layout.ground != "DTensor" or not layout.sharded:
        return ()
    return next((tuple(sorted(one.ranks)) for one in rank.of(ev.Mesh) if one.mesh == layout.mesh), ())


def _looked(optimizer: Aligned) -> dict[int, dict[int, ev.MovedBetween]]:
    """By the later step, and rank by rank, what was found."""
    found: dict[int, dict[int, ev.MovedBetween]] = defaultdict(dict)
    for place, (rank, described) in enumerate(zip(optimizer.ranks, optimizer.described, strict=True)):
        for one in rank.of(ev.MovedBetween):
            if one.optimizer == described.optimizer:
                found[one.number][place] = one
    return found


def _own(optimizer: Aligned) -> list[set[int]]:
    """Rank by rank, where it has the parameters of which it has any elements."""
    found = []
    for described, order in zip(optimizer.described, optimizer.orders, strict=True):
        places = order if order is not None else range(len(described.parameters))
        held = zip(places, described.parameters, strict=True)
        found.append({place for place, one in held if one.layout is not None and 0 not in one.layout.local})
    return found


def _finding(optimizer: Aligned, broken: list[_Apart]) -> Finding:
    number, moved, stayed = broken[0]
    rank = moved[0]
    described = optimizer.described[0]
    step = next((s for s in optimizer.steps[optimizer.ranks.index(rank)].values() if s.number >= number - 1), None)
    return Finding(
        rule="partly-changed-shards",
        severity="warning",
        ranks=tuple(one.rank for one in moved),
        subject=described.parameters[0].name,
        step=number,
        expected="what is written to the shards of one model between two steps to be written on all of its ranks",
        found=f"all shards of {ranks_text([one.rank for one in moved])}, of "
        f"{count(len(described.parameters), 'parameter')}, to hold other numbers "
        f"when step {number} began than step {number - 1} had left, and none of "
        f"{ranks_text([one.rank for one in stayed])}: the whole is put together from two models now",
        cause="weights were loaded, averaged or swapped on some ranks alone; or swapped back on the others alone",
        advice="Do it on every rank: of a sharded model each of them has a part.",
        where=rank.where(step.site) if step is not None else None,
        count=len(broken),
        links=(f"optimizer {optimizer.number}",),
    )
