"""Gradients that are added up over ranks with other parameters, while the ranks with copies of these are left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.checks.reducer_coverage.drawn_alike import Holder, Key, have_parted, holders, key_of
from ddpcheck.judging.summed_gradients import Brought, brought
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge(world: World) -> Iterator[Finding]:
    """The group goes across: all in it began with values of their own, and each has a copy beyond it.

    To add up gradients of unlike parameters, and none of those that were drawn
    alike, is right for no parameter. The copies must have diverged, too.
    """
    if world.world_size < 4:
        return
    known = holders(world)
    crossed = by_key((key_of(world, gradient), gradient) for gradient in brought(world) if len(gradient.over) > 1)
    by_groups: dict[tuple[tuple[int, ...], ...], list[tuple[Key, Brought]]] = defaultdict(list)
    for key, each in crossed.items():
        mine = known.get(key, {})
        groups = tuple(sorted({one.over for one in each}))
        if {rank for group in groups for rank in group} != set(mine) or len(groups) < 2:
            continue
        windows = {one.window for one in each}
        if len(windows) > 1 and all(_goes_across(group, mine) for group in groups):
            by_groups[groups].append((key, each[0]))
    for over, found in by_groups.items():
        yield _finding(world, over, found, known[found[0][0]])


def _goes_across(group: tuple[int, ...], mine: dict[int, Holder]) -> bool:
    """Whether its ranks have values of their own, each the same as another rank's at first, and not at last."""
    inside = [mine[number].begun for number in group]
    if len(set(inside)) < len(inside):
        return False
    for number in group:
        one = mine[number]
        copies = [it for other, it in mine.items() if other not in group and it.begun == one.begun]
        if not copies or not all(have_parted(one, copy) for copy in copies):
            return False
    return True


def _finding(
    world: World, groups: tuple[tuple[int, ...], ...], found: list[tuple[Key, Brought]], mine: dict[int, Holder]
) -> Finding:
    (_, name), first = found[0]
    names = [path for (_, path), _ in found]
    begun = mine[groups[0][0]].begun
    copies = [number for number, one in mine.items() if one.begun == begun]
    step = next((one for one in first.rank.of(ev.Step) if one.optimizer == first.optimizer), None)
    return Finding(
        rule="reduced-over-wrong-ranks",
        severity="warning",
        ranks=tuple(rank.rank for rank in world if rank.rank in mine),
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
