"""Whether a program may bring several ranks' copies of one parameter together itself, in whatever way."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank


def may_meet(rank: Rank, model: int, name: str) -> bool:
    """Whether a collective of its own goes over a parameter, or its gradient, or it is written to between steps.

    Also where nobody has looked whether it is, as on a device.
    """
    places: dict[int, int] = {}
    for one in rank.of(ev.Optimizer):
        for place, parameter in enumerate(one.parameters):
            if (parameter.model, parameter.path) == (model, name):
                places[one.optimizer] = place
    carried = any(
        places.get(record.optimizer) == one.place
        for record in rank.of(ev.Exchanged)
        for one in (*record.carried, *record.parts)
    )
    looked = [one for one in rank.of(ev.MovedBetween) if one.optimizer in places]
    return carried or not looked or any(places[one.optimizer] in one.moved for one in looked)
