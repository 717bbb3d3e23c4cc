"""Parameters that one rank steps and sends to the others: what has arrived there when their next steps begin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ddpcheck import evidence as ev
from ddpcheck.facts.holdings import Ground, Holding, Look
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.sent_by_owners import Sent, Taken, never_sent, sent
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite


@once_per_world
def of(world: World) -> list[Holding]:
    """By owner. It may send now and then: a look counts at which others of its parameters arrived.

    And what has arrived may be bounded or normalised on every rank, the owner too, before the next step.
    """
    found: dict[Rank, list[Sent]] = defaultdict(list)
    for parameter in (*sent(world), *never_sent(world)):
        found[parameter.owner].append(parameter)
    return [_holding(owner, parameters) for owner, parameters in found.items()]


def _holding(owner: Rank, parameters: list[Sent]) -> Holding:
    receivers = sorted({taken.rank for one in parameters for taken in one.taken}, key=lambda rank: rank.rank)
    taken = [
        [{one.number: one for one in parameter.taken if one.rank is rank} for parameter in parameters]
        for rank in receivers
    ]
    written = [_written(parameter) for parameter in parameters]
    looks = []
    for number in sorted({one.number for parameter in parameters for one in parameter.taken}):
        values = []
        for its in taken:
            some = any(one[number].same for one in its if number in one)
            values.append(
                tuple(
                    _arrived(one.get(number), number in places) if some else None
                    for one, places in zip(its, written, strict=True)
                )
            )
        if any(value is not None for one in values for value in one):
            looks.append(Look(number, ((1,) * len(parameters), *values), _line(receivers, number)))
    return Holding(
        "received",
        (owner.rank, *(rank.rank for rank in receivers)),
        [parameter.path for parameter in parameters],
        range(len(parameters)),
        Ground("sent", "warning", usual="first"),
        looks,
        empty=lambda _: frozenset(),
        words={"owner": str(owner.rank)},
        links=(f"optimizer {parameters[0].optimizer.optimizer}",),
    )


def _arrived(taken: Taken | None, is_written: bool) -> int | None:
    """Whether a parameter is what the owner has left; None where that is not known."""
    if taken is None or is_written or not (taken.same or taken.old):
        return None
    return int(taken.same)


def _line(receivers: list[Rank], number: int) -> Callable[[int], CallSite | None]:
    """Of a receiver's own step; the owner is the first of the holders."""

    def line(holder: int) -> CallSite | None:
        rank = receivers[max(0, holder - 1)]
        return next((rank.where(step.site) for step in rank.of(ev.Step) if step.number == number), None)

    return line


def _written(one: Sent) -> set[int]:
    """The steps before which the owner's was written to, since its step before."""
    place = [(parameter.model, parameter.path) for parameter in one.optimizer.parameters].index((one.model, one.path))
    moves = [it for it in one.owner.of(ev.MovedBetween) if it.optimizer == one.optimizer.optimizer]
    return {it.number for it in moves if place in it.moved}
