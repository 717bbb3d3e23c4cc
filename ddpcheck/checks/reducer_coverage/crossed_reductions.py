"""Does the program's own reduction add up gradients of the same parameter on all ranks? Part of reducer-coverage."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import histories
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count


def judge(optimizer: Aligned) -> list[Finding]:
    """A call that reduces one parameter's gradient on one rank and another's on another.

    That a place of the optimizer is the same parameter on all ranks is known
    by what lay there before the first step: the same on all of them, and
    nowhere else.
    """
    begun = [records[0] if records and records[0].number == 0 else None for records in histories(optimizer)]
    if not all(begun):
        return []
    calls = [
        {(c.group, c.number, c.offset): c.place for c in record.carried if c.of == "gradient" and c.alike}
        for record in begun
        if record is not None
    ]
    common = sorted(set(calls[0]).intersection(*calls[1:]))
    each = [[of[call] for of in calls] for call in common]
    crossed = [places for places in each if len(set(places)) > 1 and _are_told_apart(optimizer, places)]
    return [_finding(optimizer, crossed)] if crossed else []


def _are_told_apart(optimizer: Aligned, places: Sequence[int]) -> bool:
    """Whether each of these places had a value of its own at first, the same on all ranks."""
    for place in set(places):
        values = {step_alignment.at(one.values, place) for one in optimizer.described}
        if len(values) > 1 or values <= {ev.UNSEEN, ev.ABSENT}:
            return False
        digests = optimizer.described[0].values
        if sum(step_alignment.at(digests, p) in values for p in range(len(optimizer.described[0].parameters))) > 1:
            return False
    return True


def _finding(optimizer: Aligned, crossed: Sequence[Sequence[int]]) -> Finding:
    described = optimizer.described[0]
    names = [f"{described.parameters[place].name} (number {place})" for place in crossed[0]]
    shown = ", ".join(f"{name} on rank {rank.rank}" for name, rank in zip(names, optimizer.ranks, strict=True))
    sites = [rank.where(steps[min(steps)].site) for rank, steps in zip(optimizer.ranks, optimizer.steps, strict=True)]
    return Finding(
        rule="crossed-reductions",
        ranks=tuple(rank.rank for rank in optimizer.ranks),
        subject=described.parameters[crossed[0][0]].name,
        step=0,
        expected="each collective of the program's own to reduce the gradient of one parameter, the same on all ranks",
        found=f"{count(len(crossed), 'collective')} that reduced those of different ones: {shown}",
        cause="the ranks go through their parameters in another order, as through a set",
        advice="Go through the parameters in the same order on every rank: model.parameters(), or sorted by name.",
        where=sites[0],
        links=(f"optimizer {optimizer.number}",),
    )
