"""Copies whose gradients no ranks ever bring together, in a training that brings all others together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.drawn_alike import Holder, Key, have_parted, holders, key_of
from ddpcheck.judging import happens_before
from ddpcheck.judging.meetings_by_hand import may_meet
from ddpcheck.judging.summed_gradients import Brought, brought
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

ENOUGH = 3
"""Steps, each on the rank's own gradient."""

Copies = tuple[tuple[int, ...], ...]
"""The ranks that began alike, set by set."""


def judge(world: World) -> Iterator[Finding]:
    """Experts or shards of which there are several copies each: the model is dealt out among some ranks, and again.

    The ranks that have one of each exchange activations among them; those that
    have the same average all else of the model, and never this. A head of each
    rank's own, or one that all began with alike, is none of it.
    """
    if world.world_size < 4:
        return
    each = by_key((key_of(world, gradient), gradient) for gradient in brought(world))
    wide = {frozenset(one.over) for its in each.values() for one in its if len(one.over) > 1}
    if not wide:
        return
    found: dict[Copies, list[Key]] = defaultdict(list)
    for key, its in each.items():
        mine = holders(world).get(key, {})
        windows = {one.window for one in its}
        if len(windows) < ENOUGH or any(len(one.over) > 1 for one in its) or {r.rank.rank for r in its} != set(mine):
            continue
        copies = _copies(mine)
        if _is_dealt_out(world, copies) and all(any(set(one) <= over for over in wide) for one in copies):
            pairs = [(mine[a], mine[b]) for one in copies for a, b in combinations(one, 2)]
            met = any(may_meet(one.rank, one.model, one.path) for one in mine.values())
            if not met and all(have_parted(one, other) for one, other in pairs):
                found[copies].append(key)
    for copies, keys in found.items():
        yield _finding(copies, [name for _, name in keys], each[keys[0]][0])


def _copies(mine: dict[int, Holder]) -> Copies:
    alike = by_key((one.begun, number) for number, one in sorted(mine.items()))
    return tuple(tuple(ranks) for ranks in alike.values())


def _is_dealt_out(world: World, copies: Copies) -> bool:
    """Whether there are several sets of as many, and groups that have one of each exchange something."""
    if len(copies) < 2 or len({len(one) for one in copies}) > 1 or len(copies[0]) < 2:
        return False
    groups = {call.group for _, call in world.of(ev.Call) if call.op not in ("barrier", "wait")}
    members = [set(happens_before.members(group, world.world_size)) for group in groups]
    every = {number for one in copies for number in one}
    across = [one for one in members if all(len(one.intersection(ranks)) == 1 for ranks in copies)]
    return every <= set[int]().union(*across)


def _finding(copies: Copies, names: Sequence[str], first: Brought) -> Finding:
    step = next((one for one in first.rank.of(ev.Step) if one.optimizer == first.optimizer), None)
    return Finding(
        rule="copies-never-reduced",
        severity="warning",
        ranks=tuple(sorted(number for one in copies for number in one)),
        subject=names[0],
        expected="gradients of a parameter to be brought together over the ranks that have copies of it",
        found=f"those of {count(len(names), 'parameter')} that {listing([ranks_text(one) for one in copies])} began "
        f"alike with are brought together over no ranks at any step, as all others are, and the copies diverge: "
        f"{listing(list(names))}",
        cause="the mesh, or the group, of what is dealt out has no dimension for its replicas",
        advice="Reduce these over the ranks that hold the same expert or shard: the other dimension of the mesh.",
        where=first.rank.where(step.site) if step is not None else None,
        links=(f"optimizer {first.optimizer}",),
    )
