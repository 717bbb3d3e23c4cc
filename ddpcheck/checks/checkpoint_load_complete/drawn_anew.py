"""Loads of which nothing is left: every matrix was drawn anew before it was used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count


def judge(world: World) -> Iterator[Finding]:
    """Say it once for each line that draws, where the training goes on and no other load has left anything.

    Who loads layer by layer may draw a new head. Whether all was meant to be drawn nobody knows: a program may have
    made a copy of what was loaded, such as of a teacher, or of embeddings that it puts back.
    """
    groups: dict[str, list[tuple[Rank, ev.DrawnAnew]]] = defaultdict(list)
    for rank in world:
        drawn = rank.of(ev.DrawnAnew)
        steps = [one.n for one in rank.of(ev.Step) if drawn and one.n > drawn[0].n]
        loads = [one for one in rank.of(ev.StateLoaded) if one.owner == "module" and steps and one.n < steps[0]]
        for one in drawn if steps and len(loads) <= len(drawn) else ():
            groups[str(rank.where(one.site))].append((rank, one))
    for each in groups.values():
        rank, first = each[0]
        yield Finding(
            rule="reinitialised-after-load",
            severity="warning",
            ranks=tuple(sorted({one.rank for one, _ in each})),
            subject=f"{first.kind}.{first.weight}",
            expected="a model to train on what was loaded into it",
            found=f"the {count(first.of, 'matrix', 'matrices')} of the {first.kind} drawn anew after the load, before "
            "any module was called: what was loaded into them is overwritten",
            advice="Draw first and load then; or draw only what the checkpoint does not have. Where a training from "
            "scratch is meant, accept it.",
            where=rank.where(first.site),
            count=len(each),
            proof=rank.proof(first.loaded),
        )
