"""Parameters that an owner steps for all ranks, on the gradient of its own batch: that of the others is thrown away."""

from __future__ import annotations

from collections.abc import Iterator

from ddpcheck.judging.sent_by_owners import Sent, sent
from ddpcheck.judging.summed_gradients import Brought, brought
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

ENOUGH = 3
"""Steps, each on the owner's own gradient."""


def judge(world: World) -> Iterator[Finding]:
    """Say it once for all owners.

    The others have computed a gradient for it, of other data, or it would be the
    same as the owner's.
    """
    found = [
        one
        for one, its in _each(world)
        if len({b.window for b in its}) >= ENOUGH and all(b.over == (one.owner.rank,) for b in its)
    ]
    # Where one rank alone sends, as a learner does to its actors, the others may be there for something else.
    owners = {one.owner.rank for one in found}
    if found and owners == owners.union(taken.rank.rank for one in found for taken in one.taken):
        yield _finding(world, found)


def seen(world: World) -> int:
    """The steps of owners on gradients that were seen to be added up over ranks."""
    return sum(len(b.over) > 1 for _, its in _each(world) for b in its)


def _each(world: World) -> Iterator[tuple[Sent, list[Brought]]]:
    """What owners send, and over which ranks its gradient was added up, as far as that was seen."""
    each = sent(world)
    known = by_key(((one.rank.rank, one.model, one.path), one) for one in (brought(world) if each else ()))
    for owned in each:
        yield owned, known[owned.owner.rank, owned.model, owned.path]


def _finding(world: World, found: list[Sent]) -> Finding:
    first = found[0]
    names = [one.path for one in found]
    owners = sorted({one.owner.rank for one in found})
    return Finding(
        rule="owner-gradient-not-reduced",
        severity="warning",  # ranks may be meant to train a part of a model each
        ranks=tuple(owners),
        subject=names[0],
        expected="the gradient of a parameter that one rank steps for all to be added up over the ranks first",
        found=f"{count(len(names), 'parameter')} that {ranks_text(owners)} step and send to all, each time on the "
        f"gradient of the owner's own batch; those that the other ranks have computed go nowhere: {listing(names)}",
        cause="the reduction to the owner is missing",
        advice="Reduce each gradient to its owner (reduce, reduce_scatter or all_reduce) before the step.",
        where=first.owner.where(first.optimizer.site),
        links=(f"optimizer {first.optimizer.optimizer}",),
    )
