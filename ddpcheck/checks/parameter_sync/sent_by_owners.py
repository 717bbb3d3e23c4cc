"""Do parameters that an owner steps and sends to the others arrive on all of them, each time?"""

from __future__ import annotations

from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.judging.sent_by_owners import Sent, Taken, sent
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge(world: World) -> tuple[int, list[Finding]]:
    """How many looks there were at what has arrived; and of each owner, what has not.

    An owner may send all now and then only; so what counts is that others of its parameters had arrived. And what
    has arrived may be bounded or normalised on every rank, the owner too, before the next step.
    """
    each = sent(world)
    missed: dict[int, list[tuple[Sent, list[Taken]]]] = defaultdict(list)
    came = {(one.owner.rank, it.rank.rank, it.number) for one in each for it in one.taken if it.same}
    for one in each:
        written = _written(one)
        stale = [
            it
            for it in one.taken
            if it.old and not it.same and it.number not in written and (one.owner.rank, it.rank.rank, it.number) in came
        ]
        if stale:
            missed[one.owner.rank].append((one, stale))
    findings = [_finding(found) for found in missed.values()]
    return sum(len(one.taken) for one in each), findings


def _written(one: Sent) -> set[int]:
    """The steps before which the owner's was written to, since its step before."""
    place = [(each.model, each.path) for each in one.optimizer.parameters].index((one.model, one.path))
    moves = [it for it in one.owner.of(ev.MovedBetween) if it.optimizer == one.optimizer.optimizer]
    return {it.number for it in moves if place in it.moved}


def _finding(found: list[tuple[Sent, list[Taken]]]) -> Finding:
    first, stale = found[0]
    names = [one.path for one, _ in found]
    owner = first.owner
    step = next((one for one in stale[0].rank.of(ev.Step) if one.number == stale[0].number), None)
    ranks = tuple(sorted({taken.rank.rank for _, its in found for taken in its}))
    return Finding(
        rule="owner-update-not-received",
        severity="warning",
        ranks=ranks,
        subject=names[0],
        step=stale[0].number,
        expected=f"what rank {owner.rank} makes of parameters that it steps for all to arrive on every rank",
        found=f"{count(len(names), 'parameter')} on {ranks_text(ranks)} to be other than rank {owner.rank} has left "
        f"at its step before, though others of its parameters had arrived: {listing(names)}",
        cause="the owner sends it at some steps only, or what was there before is written back on these ranks",
        advice="Send every parameter from its owner to all ranks after each step.",
        where=stale[0].rank.where(step.site) if step is not None else None,
        count=len(stale),
        links=(f"optimizer {first.optimizer.optimizer}",),
    )
