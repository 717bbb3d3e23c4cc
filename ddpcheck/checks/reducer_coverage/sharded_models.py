"""Gradients that FSDP reduces: whether it was seen to, between steps, over the ranks that it was given."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.judging.loader_passes import AVERAGING
from ddpcheck.judging.tensor_kinds import elements_in
from ddpcheck.judging.world import Rank, World

Group = frozenset[int]


def seen(world: World) -> int:
    """Steps before which each rank has reduced as many elements over each group as have gradients there.

    What is missing is no finding: calls may be on record no longer. Whether
    gradients of copies agree is for gradient-sync to say.
    """
    given = [[set(one.ranks) for one in rank.of(ev.Parallelised) if one.how in AVERAGING] for rank in world]
    return min((_steps(world, rank, its) for rank, its in zip(world, given, strict=True) if its), default=0)


def why_none(world: World) -> str:
    """Why there was nothing to see, of a program that shards or splits models; empty of any other."""
    how = {one.how for _, one in world.of(ev.Parallelised)}
    if how & {*AVERAGING}:
        return "ddpcheck saw no reduction by FSDP before a step, over the ranks that it was given"
    if how:
        return "ddpcheck saw layers or stages that are split, and no copies of them"
    return ""


def _steps(world: World, rank: Rank, given: list[set[int]]) -> int:
    reduced = _reduced(world, rank)
    found = 0
    for phases in step_alignment.lasting(rank):
        for described, steps in phases:
            before: dict[int, int] = {}
            groups = [_groups(rank, one, given) for one in described.parameters]
            by_presence: dict[tuple[bool, ...], dict[Group, int]] = {}
            for step in steps.values():
                # The step before has to be on record: what is reduced since then is reduced for this one.
                begin = before.get(step.number - 1, 0)
                before[step.number] = step.n
                if not step.gradients or (not begin and step.number != described.number):
                    continue
                present = tuple(map(bool, memoryview(step.gradients).cast("Q")))  # the digest of an absent one is zero
                if present not in by_presence:  # nearly all steps have the same gradients
                    by_presence[present] = _wanted(described, groups, present)
                wanted = by_presence[present]
                found += bool(wanted) and all(
                    _between(reduced[group], begin, step.n) >= elements for group, elements in wanted.items()
                )
    return found


def _wanted(described: ev.Optimizer, groups: list[list[Group]], present: tuple[bool, ...]) -> dict[Group, int]:
    """How many elements of gradients FSDP has to reduce over each group before a step."""
    wanted: dict[Group, int] = defaultdict(int)
    for parameter, its, is_there in zip(described.parameters, groups, present, strict=False):
        if is_there and parameter.layout is not None:
            for group in its:
                wanted[group] += math.prod(parameter.layout.local)
    return wanted


def _groups(rank: Rank, parameter: ev.Parameter, given: list[set[int]]) -> list[Group]:
    """The ranks over which FSDP reduces a gradient: those that have the other shards, and those that have copies."""
    layout = parameter.layout
    if layout is None or layout.ground not in ("FSDP", "DTensor"):
        return []
    if layout.ground == "FSDP":
        groups = [frozenset(layout.among), frozenset(layout.holders)]
        return [group for group in groups if len(group) > 1]
    mesh = next((one for one in rank.of(ev.Mesh) if one.mesh == layout.mesh), None)
    if mesh is None or rank.rank not in mesh.ranks:
        return []
    along = list(_along(mesh, rank.rank))
    for ranks in given:
        ours = [(place, group) for place, group in enumerate(along) if len(group) > 1 and group <= ranks]
        # What FSDP has sharded is a shard along one of its dimensions.
        if any(layout.placements[place][:1] == "S" for place, _ in ours):
            return [group for _, group in ours]
    return []


def _along(mesh: ev.Mesh, rank: int) -> Iterator[Group]:
    """For each dimension of a mesh, the ranks that differ from one in this alone."""
    at, stride = mesh.ranks.index(rank), len(mesh.ranks)
    for size in mesh.shape:
        stride //= size
        first = at - at // stride % size * stride
        yield frozenset(mesh.ranks[first + place * stride] for place in range(size))


def _reduced(world: World, rank: Rank) -> dict[Group, list[tuple[int, int]]]:
    """By the ranks of a group: when, and how many elements this rank got of what was reduced over it so far."""
    found: dict[Group, list[tuple[int, int]]] = defaultdict(list)
    groups: dict[str, Group] = {}
    for call in rank.of(ev.Call):
        if "reduce_scatter" in call.op or "all_reduce" in call.op:
            if call.group not in groups:
                groups[call.group] = frozenset(one.rank for one in step_alignment.members(world, call.group))
            its = found[groups[call.group]]
            its.append((call.n, (its[-1][1] if its else 0) + elements_in(call.detail)))
    return found


def _between(reduced: list[tuple[int, int]], begin: int, end: int) -> int:
    until, since = (bisect_right(reduced, (n, math.inf)) for n in (end, begin))
    return (reduced[until - 1][1] if until else 0) - (reduced[since - 1][1] if since else 0)
