"""Loads that the first step undoes: the optimizer steps copies of its own, made before, and they win."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count


def judge(world: World) -> Iterator[Finding]:
    """Say it once for each line that loads."""
    groups: dict[CallSite | None, list[tuple[Rank, ev.TakenBack]]] = defaultdict(list)
    for rank in world:
        for one in rank.of(ev.TakenBack):
            groups[rank.where(one.loaded)].append((rank, one))
    for where, each in groups.items():
        rank, first = each[0]
        stepped = rank.where(first.site)
        yield Finding(
            severity="warning",
            ranks=tuple(sorted({one.rank for one, _ in each})),
            subject=f"{first.kind}.{first.weight}",
            expected="a model to train on from what was loaded into it",
            found=f"the {count(first.of, 'matrix', 'matrices')} of the {first.kind} to be what they were before the "
            "load again, but for an update, once the optimizer has stepped",
            cause="the optimizer steps copies of its own, such as masters in full precision or a flat buffer, which "
            "were made before the load, and are copied over the model at each step",
            advice="Load before the optimizer makes its copies, or make them anew from the model after the load.",
            where=where,
            count=len(each),
            proof=((rank.rank, stepped),) if stepped is not None and stepped != where else (),
        )
