"""Groups of ranks that share one dataset out among all of them, and bring no model together beyond each group."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.separate_models import shards
from ddpcheck.judging import first_forwards, step_alignment
from ddpcheck.judging.indirect_exchanges import by_files
from ddpcheck.judging.tensor_kinds import known_shape
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import listing, ranks_text

FEW = 4
"""Elements of a tensor that is a loss or a count, and brings no models together."""

_EMPTY = ("barrier", "monitored_barrier", "new_group", "wait", "join")


def judge(world: World) -> Iterator[Finding]:
    """Look for ranks that nothing but numbers goes between, while a sampler deals one dataset out to all of them."""
    sharded = [
        rank for rank in world if any(one.stage is None for one in rank.of(ev.Parallelised)) or rank.of(ev.Wrapped)
    ]
    line = shards(world)
    if line is None or len(sharded) < len(world) or not world.complete or by_files(world):
        return
    if not all(_is_whole(rank) for rank in world):
        return
    parts = _parts(world)
    if len(parts) < 2 or not _end_apart(world, parts):
        return
    rank = world.ranks[0]
    model = next(iter(rank.of(ev.Model)), None)
    wraps = rank.of(ev.Wrapped)
    where = first_forwards.sharded_at(rank, model) if model is not None else None
    where = where or (rank.where(wraps[0].site) if wraps else None)
    made = line.first.rank.where(line.loader.site) if line.loader is not None else None
    dataset = line.loader.dataset if line.loader is not None else "dataset"
    yield Finding(
        rule="separate-models-per-group",
        severity="warning",  # members of an ensemble may each have their part of a dataset
        ranks=tuple(one.rank for one in world),
        subject="the model",
        expected=f"ranks that train on shards of one {dataset} to train one model",
        found=f"{len(parts)} models, of {listing([ranks_text(sorted(part)) for part in parts])}: no collective of more "
        "than a few numbers goes beyond these, and their parameters differ after the last step",
        cause="the model was sharded or wrapped for a group, or a dimension of a mesh, that leaves the other ranks out",
        advice="If it is to be one model, give it the ranks that the sampler deals out to: the whole mesh, or one with "
        "a dimension for replicas.",
        where=where,
        links=(line.link,),
        proof=tuple((rank.rank, site) for site in (made, line.first.where) if site is not None),
    )


def _is_whole(rank: Rank) -> bool:
    """Whether all of its calls are on record: what is not might bring models together."""
    if rank.process.incomplete or rank.process.lacks(rank.start, rank.end) or rank.last(ev.Transfers) is None:
        return False
    by_group: dict[str, list[int]] = {}
    for call in rank.of(ev.Call):
        if call.op not in ("wait", *ev.PAIRWISE) and not call.joined:
            by_group.setdefault(call.group, []).append(call.number)
    return all(len(numbers) == max(numbers) - min(numbers) + 1 for numbers in by_group.values())


def _parts(world: World) -> list[set[int]]:
    """The ranks, put together with those that more than a few numbers go to."""
    parts: list[set[int]] = [{rank.rank} for rank in world]
    for reached in _reached(world):
        touched = [part for part in parts if part & reached]
        parts = [part for part in parts if not part & reached] + [set().union(*touched)]
    return sorted(parts, key=min)


def _reached(world: World) -> set[frozenset[int]]:
    """The ranks that more than a few numbers go between: of calls that are alike, those of one."""
    found: set[frozenset[int]] = set()
    for rank in world:
        for op, group, peer, detail in {(one.op, one.group, one.peer, one.detail) for one in rank.of(ev.Call)}:
            if op in _EMPTY or _is_small(op, detail):
                continue
            pair = op in ev.PAIRWISE and peer is not None
            ranks = (rank.rank, peer) if pair else (one.rank for one in step_alignment.members(world, group))
            found.add(frozenset(one for one in ranks if one is not None))
    return found


def _is_small(op: str, detail: str) -> bool:
    """Whether it is over a few numbers, as far as its tensor's shape shows."""
    if "scatter" in op:  # what it shows is a part
        return False
    shape = known_shape(detail)
    return shape is not None and math.prod(shape) <= FEW


def _end_apart(world: World, parts: list[set[int]]) -> bool:
    """Whether the first ranks of these hold other parameters after the last step that both have looked at."""
    firsts = [next(rank for rank in world if rank.rank == min(part)) for part in parts]
    each = [
        {(s.optimizer, s.number): s.parameters for s in rank.of(ev.Step) if s.whole and s.parameters} for rank in firsts
    ]
    common = set(each[0]).intersection(*each[1:])
    if not common:
        return False
    last = [one[max(common)] for one in each]
    return len({len(one) for one in last}) == 1 and bool(step_alignment.differing(last))
