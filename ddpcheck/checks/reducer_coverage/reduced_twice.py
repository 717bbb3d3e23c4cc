"""Gradients that DDP or FSDP has reduced, and that the program adds up over the same ranks once more."""

from __future__ import annotations

from collections import defaultdict
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
    over: list[int]
    """The ranks."""


_INSTEAD = "; or have the forward within no_sync(), if it is to take the place of DDP's"


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
    often = again and 2 * len(again) > len(steps)
    return [_finding("DDP", optimizer.ranks[0], optimizer.described[0], again)] if often else []


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
                return _Again(number, list(found), call, sorted(every))
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
        if begin < call.n < step.n and _is_sum(call):
            yield call


def _is_sum(call: ev.Call) -> bool:
    return call.op == "all_reduce" and call.detail.endswith(" sum")


def of_declared(world: World) -> list[Finding]:
    """The same of copies that FSDP has reduced along a dimension of its mesh (HSDP), as is declared."""
    found: dict[str, list[_Again]] = defaultdict(list)
    described: dict[str, tuple[Rank, ev.Optimizer]] = {}
    for rank in world:
        given = [set(one.ranks) for one in rank.of(ev.Parallelised) if one.how == "fully_shard"]
        for exchanged in rank.of(ev.Exchanged) if given else ():
            of_it = [one for one in rank.of(ev.Optimizer) if one.optimizer == exchanged.optimizer]
            last = next((one for one in reversed(of_it) if one.n < exchanged.n), None)
            again = _reduced_by_fsdp(world, rank, exchanged, last, given) if last is not None else None
            if again is not None and last is not None:
                line = str(rank.where(again.call.site))
                found[line].append(again)
                described.setdefault(line, (rank, last))
    return [_finding("FSDP", *described[line], each) for line, each in found.items()]


def _reduced_by_fsdp(
    world: World, rank: Rank, exchanged: ev.Exchanged, described: ev.Optimizer, given: Sequence[set[int]]
) -> _Again | None:
    steps = [s for s in rank.of(ev.Step) if s.optimizer == exchanged.optimizer and s.number <= exchanged.number]
    if not steps or steps[-1].number != exchanged.number:
        return None
    begin, step = steps[-2].n if len(steps) > 1 else 0, steps[-1]
    # FSDP calls from within the backward(), and the program once that is over.
    by_fsdp: dict[str, int] = {}
    for call in rank.of(ev.Call):
        if begin < call.n < step.n and call.op == "all_reduce" and call.site == step.backward_site:
            by_fsdp[call.group] = call.n
    found: list[tuple[int, ev.Call]] = []
    for carried in exchanged.parts:
        layout = described.parameters[carried.place].layout
        if layout is None or not carried.alike or carried.inside or carried.group not in by_fsdp:
            continue
        over = {one.rank for one in step_alignment.members(world, carried.group)}
        own = _call_of(rank, carried, step.n)
        if own is None or not _is_sum(own) or not by_fsdp[carried.group] < own.n:
            continue
        if len(over) > 1 and over <= set(layout.holders) and any(over <= ranks for ranks in given):
            found.append((carried.place, own))
    if not found:
        return None
    first = found[0][1]
    ranks = sorted(one.rank for one in step_alignment.members(world, first.group))
    return _Again(exchanged.number, [place for place, own in found if own.group == first.group], first, ranks)


def _call_of(rank: Rank, carried: ev.Carried, before: int) -> ev.Call | None:
    """The call that a gradient went through; of one over values, which are counted otherwise, none."""
    calls = [one for one in rank.of(ev.Call) if one.group == carried.group and one.n < before and one.op != "wait"]
    wanted = calls[-1].number + carried.number if calls and carried.of == "gradient" else None
    return next((one for one in reversed(calls) if one.number == wanted), None)


def _finding(by: str, rank: Rank, described: ev.Optimizer, again: Sequence[_Again]) -> Finding:
    first = again[0]
    names = [described.parameters[place].name for place in first.places]
    return Finding(
        rule="gradients-reduced-twice",
        severity="warning",
        ranks=tuple(sorted({r for one in again for r in one.over})),
        subject=names[0],
        step=first.number,
        expected="one reduction of each gradient for a step",
        found=f"{count(len(names), 'gradient')} that {by} had made the same on {ranks_text(first.over)} in backward(), "
        f"added up over them once more by the program itself: {listing(names)}",
        cause=f"it was written for a model without {by}; what all ranks have alike becomes {len(first.over)} times as "
        "large, unless it is divided",
        advice=f"Leave the program's own reduction out{_INSTEAD if by == 'DDP' else ''}.",
        where=rank.where(first.call.site),
        count=len({one.number for one in again}),
        links=(f"optimizer {described.optimizer}",),
    )
