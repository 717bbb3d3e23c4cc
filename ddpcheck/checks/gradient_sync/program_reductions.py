"""Do the gradients that the program reduces itself reach every rank, before every step? Judge of gradient-sync.

What goes over all ranks before every step is judged with what wrappers reduce. Here it is about what falls short of
that: a sum that one rank alone gets, and a step before which the reduction was left out. Either may be meant, where
the program brings the parameters together by other means; so nothing may have written to them between steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.brought_together import written_between
from ddpcheck.judging.replicated_parameters import first_calls, grounds, histories, lasts, like
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import World
from ddpcheck.judging.zero_digests import covers
from ddpcheck.vocabulary.model import Finding, Severity
from ddpcheck.vocabulary.wording import count, listing

History = Sequence[list[ev.Exchanged]]


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare gradients that were reduced to one rank, or at other steps, where nothing else brings ranks together.

    How often they were compared, and what was found.
    """
    checked = 0
    findings: list[Finding] = []
    for optimizer in step_alignment.optimizers(world):
        history = histories(optimizer)
        ground = grounds(world, optimizer)
        calls = first_calls(world, optimizer, history)
        left = set(calls).difference(ground.parameters, ground.moved, _shared(optimizer, history))
        left -= written_between(optimizer)
        for judged in (
            _to_one(optimizer, history, {p: calls[p] for p in left if calls[p].to_one}),
            _now_and_then(optimizer, history, {p: calls[p] for p in left if calls[p].alike}),
        ):
            checked += judged[0]
            findings += judged[1]
    return checked, findings


def _shared(optimizer: Aligned, history: History) -> set[int]:
    """The parameters that any collective went over themselves, once training had begun."""
    return {
        carried.place
        for one, records in zip(optimizer.described, history, strict=True)
        for record in records
        for carried in record.carried
        if carried.of == "parameter" and (carried.inside or record.number > one.number)
    }


# --- to one rank


def _to_one(optimizer: Aligned, history: History, calls: Mapping[int, ev.Carried]) -> tuple[int, list[Finding]]:
    """Sums that go to one rank before every step, while all ranks step."""
    places = {p for p, call in calls.items() if all(lasts(records, call) for records in history)}
    parameters = optimizer.described[0].parameters
    steps = [(n, s) for n, s in optimizer.compared() if covers(parameters, [one.gradients for one in s], places)]
    broken = [(n, s, apart) for n, s in steps if (apart := _apart(s, places))]
    if not broken:
        return sum(
            places.isdisjoint(step_alignment.differing([one.gradients for one in step])) for _, step in steps
        ), []
    cause = (
        "dist.reduce brings the sum to one rank alone, and every rank steps with what it has; nothing brings the "
        "parameters together afterwards"
    )
    advice = "Reduce gradients with all_reduce; or let that rank alone step, and broadcast the parameters."
    return len(steps), [_finding(optimizer, broken, len(places), "error", cause, advice, rule="reduction-to-one-rank")]


# --- now and then


def _now_and_then(optimizer: Aligned, history: History, calls: Mapping[int, ev.Carried]) -> tuple[int, list[Finding]]:
    """Reductions that all ranks leave out before a step and make again later, as if nothing had happened."""
    steps = list(optimizer.compared())
    until = min((one.number for records in history for one in records if one.lost), default=math.inf)
    broken = []
    for n, step in steps:
        places = {p for p, call in calls.items() if n < until and _is_left_out(history, call, n)}
        apart = [p for p in _apart(step, places) if _part_for_good(steps, p, n)]
        if apart:
            broken.append((n, step, apart))
    if not broken:
        return 0, []
    cause = (
        "the program reduces them itself, before earlier steps and later ones, and has left it out before this one: a "
        "window at the end of an epoch, or a branch, that steps without it"
    )
    advice = "Reduce the gradients before every step, those of an epoch's last and shorter window too."
    return len(broken), [_finding(optimizer, broken, len(calls), "warning", cause, advice, rule="skipped-reduction")]


def _is_left_out(history: History, call: ev.Carried, step: int) -> bool:
    """Whether no rank has reduced a gradient before this step, and all of them do before a later one."""
    for records in history:
        now = [one for one in records if one.number <= step]
        later = [one for one in records if one.number > step]
        if not now or like(call, now[-1].carried) or not any(like(call, one.carried) for one in later):
            return False
    return True


def _part_for_good(steps: Sequence[tuple[int, list[ev.Step]]], place: int, number: int) -> bool:
    """Whether the ranks had the same of a parameter before a step, and have not had since."""
    before = [step for n, step in steps if n < number]
    since = [step for n, step in steps if n >= number]
    left = any(not _differ(step, place) for step in since)
    return bool(before) and not left and not any(_differ(step, place) for step in before)


def _differ(step: Sequence[ev.Step], place: int) -> bool:
    return place in step_alignment.differing([one.parameters for one in step])


def _apart(step: Sequence[ev.Step], places: Iterable[int]) -> list[int]:
    """Of these places, those at which both the gradients and what the step has made of the parameters differ."""
    gradients = set(step_alignment.differing([one.gradients for one in step]))
    return sorted(gradients.intersection(places, step_alignment.differing([one.parameters for one in step])))


def _finding(
    optimizer: Aligned,
    broken: Sequence[tuple[int, list[ev.Step], list[int]]],
    wanted: int,
    severity: Severity,
    cause: str,
    advice: str,
    *,
    rule: str,
) -> Finding:
    number, step, places = broken[0]
    names = [optimizer.described[0].parameters[place].name for place in places]
    odd = step_alignment.odd_ranks([one.gradients for one in step], places, [rank.rank for rank in optimizer.ranks])
    rank, record = next((r, s) for r, s in zip(optimizer.ranks, step, strict=True) if r.rank in odd)
    return Finding(
        rule=rule,
        severity=severity,
        ranks=odd,
        subject=names[0],
        step=number,
        expected="all ranks to hold the same gradients on entry to the optimizer's step",
        found=f"{len(names)} of {count(wanted, 'gradient')} to differ on entry to step {number}: {listing(names)}",
        cause=cause,
        advice=advice,
        where=rank.where(record.site),
        count=len(broken),
        links=(f"optimizer {optimizer.number}",),
    )
