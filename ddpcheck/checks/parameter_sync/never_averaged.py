"""Parameters that began alike, and that every exchange leaves out which brings the others together."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.brought_together import Meeting, looks, meetings
from ddpcheck.judging.loader_passes import loops
from ddpcheck.judging.same_dataset import identity_of
from ddpcheck.judging.saved_state import every_save
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

ENOUGH = 3
"""Exchanges that have to bring the same ones together: who takes turns brings others together in each."""


def judge(world: World) -> tuple[int, list[Finding]]:
    """How often that was looked at, and what was left out each time."""
    by_optimizer = by_key((one.optimizer.number, one) for one in meetings(world) if one.met)
    checked, findings = 0, []
    for each in by_optimizer.values():
        optimizer = each[0].optimizer
        apart = [places for _, places, _ in looks(world, optimizer)]
        if len(apart) < ENOUGH or len(set(apart)) > 1 or len({(one.met, one.lines) for one in each}) > 1:
            continue
        checked += len(apart)
        left = _left_out(optimizer, apart[0])
        if left and not _is_sent(optimizer, each[0], left) and not _is_each_ranks_own(world, optimizer, left):
            findings.append(_finding(optimizer, each[0], len(apart), left))
    return checked, findings


def _left_out(optimizer: Aligned, apart: frozenset[int]) -> list[int]:
    """The places that differ after every exchange and were the same before the first step.

    Where something else began apart, as experts do, constants may be a part of it:
    biases of zeros are the same by chance.
    """
    parameters = optimizer.described[0].parameters
    begun = set(step_alignment.differing([one.values for one in optimizer.described]))
    plain = {place for place in apart if parameters[place].wrapper is None and parameters[place].layout is None}
    alike = plain - begun
    drawn = {place for place in alike if not parameters[place].filled}
    return sorted(drawn if begun else alike) if drawn else []


def _is_sent(optimizer: Aligned, first: Meeting, left: list[int]) -> bool:
    """Whether something of their shapes was sent, which what is exchanged each time has not: it is done seldom."""
    parameters = optimizer.described[0].parameters
    kinds = {parameters[place].kind for place in left} - {parameters[place].kind for place in first.met}
    calls = [call.detail for rank in optimizer.ranks for call in rank.of(ev.Call)]
    return any(detail.startswith(kind) for kind in kinds for detail in calls)


def _is_each_ranks_own(world: World, optimizer: Aligned, left: list[int]) -> bool:
    """Whether ranks are clients: each has a dataset of its own, or saves these parameters for itself."""
    for line in loops(world):
        if line.training and identity_of(one for ones in line.passes.values() for one in ones).different:
            return True
    parameters = optimizer.described[0].parameters
    names = {parameters[place].path or parameters[place].name for place in left}
    saved = {
        (state.record.path, state.rank.rank)
        for state in every_save(world)
        if any(one.role == "parameter" and one.of in names for one in state.form.entries)
    }
    alone = {rank for path, rank in saved if sum(other == path for other, _ in saved) == 1}
    return alone >= {rank.rank for rank in optimizer.ranks}


def _finding(optimizer: Aligned, first: Meeting, times: int, left: list[int]) -> Finding:
    parameters = optimizer.described[0].parameters
    names = [parameters[place].name for place in left]
    return Finding(
        rule="parameters-never-averaged",
        severity="warning",
        ranks=tuple(rank.rank for rank in optimizer.ranks),
        subject=names[0],
        step=first.number,
        expected="what the program exchanges at this line to bring all parameters together that began alike on all "
        "ranks",
        found=f"{count(len(first.met), 'parameter')} that are the same afterwards, and {len(names)} that never are, in "
        f"each of {count(times, 'exchange')} looked at: {listing(names)}",
        cause="the average goes over some of the parameters alone, and the others drift apart, rank by rank",
        advice="Average all parameters of the model; or accept it, where a part is meant to be each rank's own.",
        where=next((line for line in first.lines if line is not None), None),
        count=times,
        links=(f"optimizer {optimizer.number}",),
    )
