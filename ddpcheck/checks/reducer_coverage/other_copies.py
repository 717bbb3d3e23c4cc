"""Gradients that are added up over ranks with other parameters, while the ranks with copies of these are left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.judging import parameter_history, step_alignment
from ddpcheck.judging.summed_gradients import Brought, brought
from ddpcheck.judging.world import Rank, World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

Key = tuple[str, str]
"""The class of a model, and a parameter's name in there."""


class _Holder(NamedTuple):
    """A rank that has a parameter."""

    rank: Rank
    model: int
    path: str
    begun: bytes
    """Its digest before the first step."""


def judge(world: World) -> Iterator[Finding]:
    """The group goes across: all in it began with values of their own, and each has a copy beyond it.

    Equal values are no ground for that ranks must agree; but to add up gradients
    of unlike ones, and none of those that were drawn alike, is right for no
    parameter. The copies must have diverged, too.
    """
    if world.world_size < 4:
        return
    kinds = {(rank.rank, one.model): one.kind for rank in world for one in rank.of(ev.Model)}
    holders = _holders(world, kinds)
    crossed: dict[Key, list[Brought]] = defaultdict(list)
    for gradient in brought(world):
        if len(gradient.over) > 1:
            crossed[kinds.get((gradient.rank.rank, gradient.model), ""), gradient.path].append(gradient)
    by_groups: dict[tuple[tuple[int, ...], ...], list[tuple[Key, Brought]]] = defaultdict(list)
    for key, each in crossed.items():
        groups = tuple(sorted({one.over for one in each}))
        if {rank for group in groups for rank in group} != set(holders[key]) or len(groups) < 2:
            continue
        windows = {one.window for one in each}
        if len(windows) > 1 and all(_goes_across(group, holders[key]) for group in groups):
            by_groups[groups].append((key, each[0]))
    for over, found in by_groups.items():
        yield _finding(world, over, found, holders[found[0][0]])


def _holders(world: World, kinds: dict[tuple[int, int], str]) -> dict[Key, dict[int, _Holder]]:
    """By parameter and rank, as it was when an optimizer came to it first: until then it may be drawn, and sent."""
    found: dict[Key, dict[int, _Holder]] = defaultdict(dict)
    for rank in world:
        for described in rank.of(ev.Optimizer):
            for place, one in enumerate(described.parameters):
                begun = step_alignment.at(described.values, place)
                if one.model is None or one.layout is not None or one.filled or begun in (b"", ev.UNSEEN):
                    continue
                holder = _Holder(rank, one.model, one.path, begun)
                found[kinds.get((rank.rank, one.model), ""), one.path].setdefault(rank.rank, holder)
    return found


def _goes_across(group: tuple[int, ...], holders: dict[int, _Holder]) -> bool:
    """Whether its ranks have values of their own, each the same as another rank's at first, and not at last."""
    inside = [holders[number].begun for number in group]
    if len(set(inside)) < len(inside):
        return False
    for number in group:
        mine = holders[number]
        copies = [one for other, one in holders.items() if other not in group and one.begun == mine.begun]
        if not copies or not all(_part(mine, copy) for copy in copies):
            return False
    return True


def _part(one: _Holder, other: _Holder) -> bool:
    """Whether two that began alike differ after the last step that was looked at on both."""
    mine, its = (
        {step.number: digest for step, digest in parameter_history.after_steps(each.rank, each.model, each.path)}
        for each in (one, other)
    )
    common = mine.keys() & its.keys()
    return bool(common) and mine[max(common)] != its[max(common)]


def _finding(
    world: World, groups: tuple[tuple[int, ...], ...], found: list[tuple[Key, Brought]], holders: dict[int, _Holder]
) -> Finding:
    (_, name), first = found[0]
    names = [path for (_, path), _ in found]
    mine = holders[groups[0][0]]
    copies = [number for number, one in holders.items() if one.begun == mine.begun]
    step = next((one for one in first.rank.of(ev.Step) if one.optimizer == first.optimizer), None)
    return Finding(
        severity="warning",
        ranks=tuple(rank.rank for rank in world if rank.rank in holders),
        subject=name,
        expected="gradients of a parameter to be added up over the ranks that have copies of it",
        found=f"those of {count(len(names), 'parameter')} added up over {ranks_text(groups[0])}, which began with "
        f"other values each, while {ranks_text(copies)}, which began alike, are not brought together and diverge: "
        f"{listing(names)}",
        cause="the group is that of the ranks with other experts or shards, and not of those with copies",
        advice="Reduce over the ranks that hold the same expert or shard: the other dimension of the mesh.",
        where=first.rank.where(step.site) if step is not None else None,
        links=(f"optimizer {first.optimizer}",),
    )
