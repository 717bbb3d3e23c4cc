"""Stages of a pipeline that send each other scaled gradients: are these divided by what they were multiplied by?"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count

ENOUGH = 2
"""Steps with other scales: one may lie between the news of an overflow and what is made of it."""


def judge(world: World) -> tuple[int, list[Finding]]:
    """Compare the scales of ranks that send each other tensors, of which one has no loss of its own.

    Its gradients come with the factor of the rank that has the loss, and are
    divided by its own scaler's.
    """
    checked = 0
    findings = []
    scales = {rank.rank: steps for rank in world if (steps := _scales(rank))}
    scaled = [rank for rank in world if rank.rank in scales]
    peers = {rank.rank: _peers(rank) for rank in scaled}
    sent = {rank.rank for rank in scaled if _is_sent_gradients(rank)}
    for one, other in combinations(scaled, 2):
        together = other.rank in peers[one.rank] and one.rank in peers[other.rank]
        if not together or not {one.rank, other.rank} & sent:
            continue
        mine, its = scales[one.rank], scales[other.rank]
        common = sorted(mine.keys() & its.keys())
        checked += len(common)
        apart = [number for number in common if mine[number].scale != its[number].scale]
        if len(apart) >= ENOUGH:
            findings.append(_finding(one, other, mine[apart[0]], its[apart[0]], len(apart)))
    return checked, findings


def _peers(rank: Rank) -> set[int]:
    """Those that a rank sends something to, or receives it from, for every step."""
    calls = Counter(call.peer for call in rank.of(ev.Call) if call.op in ev.PAIRWISE and call.peer is not None)
    return {peer for peer, number in calls.items() if number >= len(rank.of(ev.Step))}


def _is_sent_gradients(rank: Rank) -> bool:
    """Whether all of its backwards go on from gradients that another rank has computed."""
    backwards = [one for record in rank.of(ev.StepWeights) for one in record.backwards]
    return bool(backwards) and all(one.continued for one in backwards)


def _scales(rank: Rank) -> dict[int, ev.Step]:
    """By number, the steps of its only optimizer that a scaler has made."""
    if len({step.optimizer for step in rank.of(ev.Step)}) > 1:
        return {}
    return {step.number: step for step in rank.of(ev.Step) if step.scale is not None and step.scale != ev.UNREAD}


def _finding(one: Rank, other: Rank, mine: ev.Step, its: ev.Step, times: int) -> Finding:
    return Finding(
        rule="unequal-scales-of-stages",
        severity="warning",
        ranks=(one.rank, other.rank),
        subject="the gradient scale",
        step=mine.number,
        expected="stages that send each other gradients to have one scale: all divide their gradients by what the last "
        "one multiplies its loss by",
        found=f"{mine.scale:g} on rank {one.rank} and {its.scale:g} on rank {other.rank}, and others in "
        f"{count(times, 'step')} in all",
        cause="the scaler of each stage looks for an overflow in its own gradients alone",
        advice="All-reduce the flag of an overflow (with MAX) over the stages before any of them steps or changes its "
        "scale.",
        where=one.where(mine.site),
        links=("skipped steps",),
    )
