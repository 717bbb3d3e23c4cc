"""Gradients that DDP has reduced, and that the program adds up over the same ranks once more before the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import histories
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.tensor_kinds import elements_in
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


class _Again(NamedTuple):
    """A step on gradients that were reduced twice."""

    number: int
    places: list[int]
    call: ev.Call
    """The program's own, on the first rank."""


def judge(world: World, optimizer: Aligned) -> list[Finding]:
    """A finding where it happens at most of the steps that were looked at.

    What a division makes the same again to the bit was right, and is no finding.
    """
    if any(one.apart for one in optimizer.described):
        return []
    history = histories(optimizer)
    if not any(carried for records in history for one in records for carried in one.carried):
        return []
    steps = [(number, step) for number, step in optimizer.compared() if all(s.gradients for s in step)]
    again = [one for number, step in steps if (one := _again(world, optimizer, history, number, step)) is not None]
    return [_finding(optimizer, again)] if again and 2 * len(again) > len(steps) else []


def _again(
    world: World, optimizer: Aligned, history: list[list[ev.Exchanged]], number: int, step: Sequence[ev.Step]
) -> _Again | None:
    rank = optimizer.ranks[0]
    every = {one.rank for one in optimizer.ranks}
    found: dict[int, ev.Carried] = {}
    for place, parameter in enumerate(optimizer.described[0].parameters):
        carried = [_carried(records, s.number, place) for records, s in zip(history, step, strict=True)]
        first = carried[0]
        if first is None or None in carried or not parameter.reduced or parameter.ignored:
            continue
        over = {one.rank for one in step_alignment.members(world, first.group)}
        if len(over) > 1 and over <= every and _was_reduced(optimizer, step, place):
            found[place] = first
    calls = list(_sums(optimizer, rank, step[0]))
    for place, one in found.items():
        most = elements_in(optimizer.described[0].parameters[place].kind)
        for call in calls:
            if call.group == one.group and elements_in(call.detail) >= most:
                return _Again(number, list(found), call)
    return None


def _carried(records: Sequence[ev.Exchanged], number: int, place: int) -> ev.Carried | None:
    """What the program itself did with a gradient between the step before and this one, as all ranks of a group do."""
    last = next((one for one in reversed(records) if one.number <= number), None)
    if last is None or last.lost:
        return None
    for one in last.carried:
        if one.place == place and one.of == "gradient" and one.alike and not one.inside and not one.flat:
            return one
    return None


def _was_reduced(optimizer: Aligned, step: Sequence[ev.Step], place: int) -> bool:
    """Whether DDP had made the gradient the same on all ranks in the only backward(), and it is another one now."""
    after = set()
    for described, s in zip(optimizer.described, step, strict=True):
        parameter = described.parameters[place]
        usage = next((one for one in s.usage if one.wrapper == parameter.wrapper), None)
        if usage is None or not usage.after or not usage.reached or not usage.last_armed or usage.no_sync_forwards:
            return False
        if usage.backwards != s.backwards:  # of what another backward() leaves, nobody knows
            return False
        after.add(usage.after)
    said = after.pop()
    left = {step_alignment.at(said, p) for p in range(len(said) // ev.WIDTH)}
    return not after and all(step_alignment.at(s.gradients, place) not in {ev.ABSENT, ev.UNSEEN, *left} for s in step)


def _sums(optimizer: Aligned, rank: Rank, step: ev.Step) -> Iterator[ev.Call]:
    """The sums that the program itself makes on a rank before a step, since the one before."""
    begin = max((one.n for one in optimizer.steps[0].values() if one.n < step.n), default=0)
    for call in rank.of(ev.Call):
        if begin < call.n < step.n and call.op == "all_reduce" and call.detail.endswith(" sum"):
            yield call


def _finding(optimizer: Aligned, again: Sequence[_Again]) -> Finding:
    first = again[0]
    names = [optimizer.described[0].parameters[place].name for place in first.places]
    ranks = [rank.rank for rank in optimizer.ranks]
    return Finding(
        severity="warning",
        ranks=tuple(ranks),
        subject=names[0],
        step=first.number,
        expected="one reduction of each gradient for a step",
        found=f"{count(len(names), 'gradient')} that DDP had made the same on {ranks_text(ranks)} in backward(), "
        f"added up over them once more by the program itself: {listing(names)}",
        cause=f"it was written for a model without DDP; what all ranks have alike becomes {len(ranks)} times as large, "
        "unless it is divided",
        advice="Leave the program's own reduction out; or have the forward within no_sync(), if it is to take the "
        "place of DDP's.",
        where=optimizer.ranks[0].where(first.call.site),
        count=len(again),
        links=(f"optimizer {optimizer.number}",),
    )
