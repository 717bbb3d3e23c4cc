"""Wrappers that are never let reduce, where it was not seen that anything else makes the ranks the same again."""

from __future__ import annotations

from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging.indirect_exchanges import is_seen_together, kept_apart
from ddpcheck.judging.replicated_parameters import grounds
from ddpcheck.judging.step_alignment import Aligned
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding


def judge(world: World, optimizer: Aligned) -> Iterator[Finding]:
    """One finding for each."""
    met = {*_written_between(optimizer), *grounds(world, optimizer).exchanged}
    for wrapper, places in kept_apart(world, optimizer).items():
        if places <= met or is_seen_together(world, wrapper):
            continue
        rank, usage = next(
            (rank, usage)
            for rank, steps in zip(optimizer.ranks, optimizer.steps, strict=True)
            for step in steps.values()
            for usage in step.usage
            if usage.wrapper == wrapper
        )
        kind = next((w.kind for w in rank.of(ev.Wrapped) if w.wrapper == wrapper), "module")
        yield Finding(
            rule="forwards-without-sync",
            severity="warning",
            ranks=tuple(r.rank for r in optimizer.ranks),
            subject=f"the wrapper of {kind}",
            expected="before every optimizer step a forward through the wrapper that prepares the reduction",
            found="every forward ran under no_sync(), and ddpcheck saw nothing bring these parameters together",
            cause="the program brings the ranks together by other means, or does not leave no_sync()",
            advice="If DDP is to reduce, leave no_sync() before the last forward of a step.",
            where=rank.where(usage.no_sync_site),
            links=(f"optimizer {optimizer.number}", f"wrapper {wrapper}"),
        )


def _written_between(optimizer: Aligned) -> set[int]:
    """The places that were written to between two of its steps on some rank, by whatever means."""
    each = zip(optimizer.ranks, optimizer.described, optimizer.orders, strict=True)
    return {
        place if order is None else order.index(place)
        for rank, described, order in each
        for one in rank.of(ev.MovedBetween)
        for place in (one.moved if one.optimizer == described.optimizer else ())
        if order is None or place in order
    }
