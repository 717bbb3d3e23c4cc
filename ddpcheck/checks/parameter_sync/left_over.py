"""Parameters that are left over where an optimizer deals those of one shape out to the ranks, so many to each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from ddpcheck.judging import step_alignment
from ddpcheck.judging.copies import Copies
from ddpcheck.judging.differing_steps import Compared, broken
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing

COPY_BACK = (
    "Let every rank copy each slice of what was gathered into its parameter, those of a last round that does not give "
    "every rank one included."
)


def judge(held: Copies, steps: Compared, handed_out: Collection[int]) -> Finding | None:
    """Of a shape whose other parameters are handed out, full rounds of all ranks, those that differ after every step.

    They were the same before the first one. That they are no copies, as experts of each rank, nobody rules out.
    """
    optimizer = held.optimizer
    by_kind: dict[str, list[int]] = defaultdict(list)
    for place, parameter in enumerate(optimizer.described[0].parameters):
        if parameter.wrapper is None and parameter.layout is None:
            by_kind[parameter.kind].append(place)
    apart = set(step_alignment.differing([one.values for one in optimizer.described]))
    left: list[int] = []
    for places in by_kind.values():
        dealt = len(set(places).intersection(handed_out))
        rest = set(places).difference(handed_out, held.parameters, apart)
        if dealt and dealt % len(optimizer.ranks) == 0 and dealt + len(rest) == len(places):
            left += sorted(rest) if len(rest) < len(optimizer.ranks) else []
    found = broken(steps, left, lambda step: step.parameters) if left else []
    if not found or len(found) < len(steps):
        return None
    number, step, places = found[0]
    names = [optimizer.described[0].parameters[place].name for place in places]
    return Finding(
        rule="leftover-parameters-not-sent",
        severity="warning",
        ranks=tuple(rank.rank for rank in optimizer.ranks),
        subject=names[0],
        step=number,
        expected=f"the parameters of one shape that the {optimizer.kind} deals out to the ranks to be the same on all "
        "of them after a step",
        found=f"{count(len(names), 'parameter')} left over that no rank hands to the others, and that differ after "
        f"step {number}: {listing(names)}",
        cause=f"their number does not divide by {len(optimizer.ranks)} ranks, and the last round is left out",
        advice=COPY_BACK,
        where=optimizer.ranks[0].where(step[0].site),
        count=len(found),
        links=(f"optimizer {optimizer.number}",),
    )
