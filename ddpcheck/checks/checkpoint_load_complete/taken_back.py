"""Loads of which a training has nothing: what the optimizer steps are copies made before, or shards left as cut."""

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
        matrices = f"the {count(first.of, 'matrix', 'matrices')} of the {first.kind}"
        yield Finding(
            rule="stale-shards-after-load" if first.unreached else "load-undone-by-step",
            severity="warning",
            ranks=tuple(sorted({one.rank for one, _ in each})),
            subject=f"{first.kind}.{first.weight}",
            expected="a model to train on from what was loaded into it",
            found=f"the shards of {matrices} to be as they were cut before the load, when the optimizer first steps"
            if first.unreached
            else f"{matrices} to be what they were before the load again, but for an update, once the optimizer has "
            "stepped",
            cause="it was loaded into copies that were gathered for a while, as within summon_full_params() with "
            "writeback=False: they are dropped, and the shards stay"
            if first.unreached
            else "the optimizer steps copies of its own, such as masters in full precision or a flat buffer, which "
            "were made before the load, and are copied over the model at each step",
            advice="Load into the sharded model itself (set_model_state_dict() with full_state_dict), or write the "
            "gathered copies back (writeback=True)."
            if first.unreached
            else "Load before the optimizer makes its copies, or make them anew from the model after the load.",
            where=where,
            count=len(each),
            proof=((rank.rank, stepped),) if stepped is not None and stepped != where else (),
        )
