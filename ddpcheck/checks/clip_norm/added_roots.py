"""Norms of parts that are added up as they are, where their squares should be."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm import moments
from ddpcheck.checks.clip_norm.moments import Measured, Step
from ddpcheck.judging import happens_before
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding


class _Added(NamedTuple):
    """The norms of what each rank has, added up before a step."""

    number: int
    each: list[Measured]

    @property
    def factor(self) -> float:
        return self.each[0].norm.factor or 1.0

    @property
    def used(self) -> float:
        return self.each[0].norm.came or 0.0

    @property
    def whole(self) -> float:
        return math.sqrt(math.fsum(one.total for one in self.each))


def judge(world: World, steps: list[tuple[int, int, Step]]) -> tuple[int, list[Finding]]:
    """How many sums of norms were looked at, and those that gradients were scaled by.

    That they were shows in the steps: the factor times the norm is one number,
    the bound, wherever gradients were made smaller.
    """
    sums: dict[tuple[int, str], list[_Added]] = defaultdict(list)
    for optimizer, number, step in steps:
        groups = dict.fromkeys(one.norm.group for measured in step.values() for one in measured if one.norm.group)
        for group in groups:
            added = _added(world, number, step, group)
            if added is not None:
                sums[optimizer, group].append(added)
    findings = []
    for (optimizer, _), its in sums.items():
        clipped = [one for one in its if one.factor < 1 - moments.ALIKE]
        if len(clipped) < 2 or not moments.is_one([one.factor * one.used for one in clipped]):
            continue
        if not moments.is_one([one.factor * one.whole for one in clipped]):
            findings.append(_finding(optimizer, clipped))
    return sum(map(len, sums.values())), findings


def _added(world: World, number: int, step: Step, group: str) -> _Added | None:
    """What the ranks of a group, which hold parts of one model, have put into a sum: each the norm of its own."""
    each = []
    ranks = happens_before.members(group, world.world_size)
    for rank in ranks:
        mine = [one for one in step.get(rank, ()) if one.norm.group == group and _is_root(one)]
        if not mine:
            return None
        each.append(mine[0])
    declared = all(set(ranks) <= one.among and is_split(one) for one in each)
    if len(each) < 2 or not (declared or _are_dealt_out(each)):
        return None
    came = each[0].norm.came or 0.0
    return None if moments.differ(came, math.fsum(one.norm.given or 0.0 for one in each)) else _Added(number, each)


def _is_root(one: Measured) -> bool:
    given = one.norm.given
    return given is not None and given > 0 and not moments.differ(given, math.sqrt(one.total))


def is_split(one: Measured) -> bool:
    """Whether no other rank of the sum has any of it, too."""
    layouts = [parameter.layout for parameter in one.parameters]
    stages = any(part.how == "PipelineStage" for part in one.rank.of(ev.Parallelised))
    return all(len(each.holders) < 2 and each.sharded if each is not None else stages for each in layouts)


def _are_dealt_out(each: list[Measured]) -> bool:
    """Whether every rank has the whole model, and steps other parameters of it than the others do (ZeRO by hand)."""
    paths = [[parameter.path for parameter in one.parameters] for one in each]
    every = [path for its in paths for path in its]
    if not all(paths) or "" in every or len(set(every)) < len(every):
        return False
    held = [{held.name for model in one.rank.of(ev.Model) for held in model.held} for one in each]
    return all(set(every) <= names for names in held)


def _finding(optimizer: int, clipped: list[_Added]) -> Finding:
    first = clipped[0]
    one = first.each[0]
    return Finding(
        rule="sum-of-norms",
        ranks=tuple(m.rank.rank for m in first.each),
        subject=f"the gradients of optimizer {optimizer}" if optimizer else "the gradients",
        step=first.number,
        expected="gradients to be clipped by the norm of the whole: the root of the sum of all squares",
        found=f"a norm of {first.used:.4g}, the sum of the norms of each rank's part; that of the whole is "
        f"{first.whole:.4g}",
        cause="the norms are all-reduced as they are",
        advice="All-reduce the squares of the norms, and take the root of that.",
        where=one.rank.where(one.norm.site),
        count=len(clipped),
        links=(f"optimizer {optimizer}",),
    )
