"""Buckets of the program's own in which gradients lie side by side: in the same order on all ranks?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.facts import copies, logical_tensors
from ddpcheck.judging import happens_before
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import listing

Bucket = dict[Rank, ev.BucketOrder]
"""What goes into one call, rank by rank."""


def judge(world: World) -> Iterator[Finding]:
    """The same gradients of copies of one model, in another order: those of different weights are added up."""
    calls: dict[tuple[str, int], Bucket] = defaultdict(dict)
    for rank, one in world.of(ev.BucketOrder):
        calls[one.group, one.number][rank] = one
    crossed: dict[CallSite | None, list[tuple[Bucket, list[int]]]] = defaultdict(list)
    for (group, _), each in calls.items():
        ranks = happens_before.members(group, world.world_size)
        if len(ranks) < 2 or {rank.rank for rank in each} != set(ranks):
            continue
        orders = [one.paths for one in each.values()]
        if any(sorted(one) != sorted(orders[0]) for one in orders):
            continue
        apart = [at for at, names in enumerate(zip(*orders, strict=True)) if len(set(names)) > 1]
        if apart and _are_copies(world, each):
            first = next(iter(each))
            crossed[first.where(each[first].site)].append((each, apart))
    for where, its in crossed.items():
        yield _finding(where, its)


def _are_copies(world: World, each: Bucket) -> bool:
    """Whether the ranks hold copies of what is called by these names, as far as they are no constants."""
    known = {
        (rank, held.piece.model, tensor.path): copies.of(world)[place][rank]
        for place, tensor in enumerate(logical_tensors.of(world))
        for rank, held in tensor.held.items()
    }
    numbers = {rank.rank for rank in each}
    drawn = 0
    for name in next(iter(each.values())).paths:
        looked_up = [known.get((rank.rank, one.model, name)) for rank, one in each.items()]
        varied = [holders for holders in looked_up if holders is not None and holders.kind != "constant"]
        if any(not numbers <= holders.ranks for holders in varied):
            return False
        drawn += len(varied) == len(each)
    return drawn > 1


def _finding(where: CallSite | None, its: list[tuple[Bucket, list[int]]]) -> Finding:
    each, apart = its[0]
    shown = [f"{one.paths[apart[0]]} on rank {rank.rank}" for rank, one in each.items()]
    rank, one = next(iter(each.items()))
    step = next((step for step in rank.of(ev.Step) if step.n > one.n), None)
    return Finding(
        rule="different-bucket-order",
        ranks=tuple(rank.rank for rank in each),
        subject=one.paths[apart[0]],
        step=step.number if step is not None else None,
        expected="a bucket of gradients to have them in the same order on all ranks that add it up",
        found=f"the same {len(one.paths)} gradients in another order on each rank, {len(apart)} of them where others "
        f"have another one: at place {apart[0]}, that of {listing(shown)}",
        cause="the bucket is filled in the order in which backward() has computed the gradients, or that of a set",
        advice="Fill it in an order that all ranks share, such as that of model.parameters().",
        where=where,
        count=len(its),
        links=(f"optimizer {step.optimizer}",) if step is not None else (),
    )
