"""Parameters that one rank steps and sends to the others: what has arrived there when their next steps begin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ddpcheck import evidence as ev
from ddpcheck.facts.holdings import Ground, Holding, Look
from ddpcheck.judging.once_per_world import once_per_world
from ddpcheck.judging.sent_by_owners import Sent, Taken, sent
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite


@once_per_world
def of(world: World) -> list[Holding]:
    """By owner and receiver. An owner may send now and then: a look counts at which others of its parameters arrived.

    And what has arrived may be bounded or normalised on every rank, the owner too, before the next step.
    """
    found: dict[tuple[Rank, Rank], list[Sent]] = defaultdict(list)
    for parameter in sent(world):
        for rank in {taken.rank for taken in parameter.taken}:
            found[parameter.owner, rank].append(parameter)
    return [_holding(owner, rank, parameters) for (owner, rank), parameters in found.items()]


def _holding(owner: Rank, rank: Rank, parameters: list[Sent]) -> Holding:
    taken = [{one.number: one for one in parameter.taken if one.rank is rank} for parameter in parameters]
    written = [_written(parameter) for parameter in parameters]
    sites = {step.number: step.site for step in reversed(rank.of(ev.Step))}
    looks = []
    for number in sorted(set().union(*taken)):
        arrived = [_arrived(its.get(number), number in places) for its, places in zip(taken, written, strict=True)]
        if any(its[number].same for its in taken if number in its):
            looks.append(Look(number, ((1,) * len(arrived), tuple(arrived)), _line(rank, sites.get(number))))
    return Holding(
        "received",
        (owner.rank, rank.rank),
        [parameter.path for parameter in parameters],
        range(len(parameters)),
        Ground("sent", "warning"),
        looks,
        words={"owner": str(owner.rank), "receiver": str(rank.rank)},
        links=(f"optimizer {parameters[0].optimizer.optimizer}",),
    )


def _arrived(taken: Taken | None, is_written: bool) -> int | None:
    """Whether a parameter is what the owner has left; None where that is not known."""
    if taken is None or is_written or not (taken.same or taken.old):
        return None
    return int(taken.same)


def _line(rank: Rank, site: int | None) -> Callable[[int], CallSite | None]:
    return lambda _: rank.where(site) if site is not None else None


def _written(one: Sent) -> set[int]:
    """The steps before which the owner's was written to, since its step before."""
    place = [(parameter.model, parameter.path) for parameter in one.optimizer.parameters].index((one.model, one.path))
    moves = [it for it in one.owner.of(ev.MovedBetween) if it.optimizer == one.optimizer.optimizer]
    return {it.number for it in moves if place in it.moved}
