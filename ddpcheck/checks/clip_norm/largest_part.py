"""A clip by the largest of the norms that the ranks have of their parts, where the norm of the whole should be."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm import moments
from ddpcheck.checks.clip_norm.moments import Measured, Step
from ddpcheck.judging.step_alignment import Windows
from ddpcheck.vocabulary.model import Finding

ENOUGH = 3
"""Steps that were clipped: so many have one bound by no chance."""


class _Clipped(NamedTuple):
    """A step whose gradients every rank has multiplied by one number."""

    number: int
    each: list[Measured]
    factor: float

    @property
    def largest(self) -> float:
        return math.sqrt(max(one.total for one in self.each))

    @property
    def whole(self) -> float:
        return math.sqrt(math.fsum(one.total for one in self.each))


def judge(steps: list[tuple[int, int, Step]]) -> tuple[Windows, list[Finding]]:
    """The windows that were clipped so, and the findings: however the norms have come together, the bound shows it."""
    met: dict[tuple[int, tuple[int, ...]], list[_Clipped]] = defaultdict(list)
    for optimizer, number, step in steps:
        for clipped in _clipped(number, step):
            met[optimizer, tuple(one.rank.rank for one in clipped.each)].append(clipped)
    findings, checked = [], Windows()
    for (optimizer, _), its in met.items():
        by_largest = moments.is_one([one.factor * one.largest for one in its])
        if len(its) >= ENOUGH and by_largest and not moments.is_one([one.factor * one.whole for one in its]):
            checked |= {(optimizer, one.number) for one in its}
            findings.append(_finding(optimizer, its))
    return checked, findings


def _clipped(number: int, step: Step) -> Iterator[_Clipped]:
    """Where all ranks that are declared to hold parts of one model have made them smaller by one factor."""
    known = {rank: one for rank, measured in sorted(step.items()) if (one := moments.scaled(measured)) is not None}
    for ranks in dict.fromkeys(one.among for one in known.values() if len(one.among) > 1 and one.among <= known.keys()):
        each = [known[rank] for rank in sorted(ranks)]
        factors = [one.norm.factor or 0.0 for one in each]
        if not all(one.among == ranks and _is_split(one) for one in each):
            continue
        if not moments.differ(min(factors), max(factors)) and 0 < factors[0] < 1 - moments.ALIKE:
            yield _Clipped(number, each, factors[0])


def _is_split(one: Measured) -> bool:
    """Whether no other rank has any of it, too."""
    layouts = [parameter.layout for parameter in one.parameters]
    stages = any(part.how == "PipelineStage" for part in one.rank.of(ev.Parallelised))
    return all(len(each.holders) < 2 and each.sharded if each is not None else stages for each in layouts)


def _finding(optimizer: int, clipped: list[_Clipped]) -> Finding:
    first = clipped[0]
    one = first.each[0]
    return Finding(
        rule="maximum-of-norms",
        ranks=tuple(m.rank.rank for m in first.each),
        subject=f"the gradients of optimizer {optimizer}" if optimizer else "the gradients",
        step=first.number,
        expected="gradients to be clipped by the norm of the whole: the root of the sum of all squares",
        found=f"a clip by {first.largest:.4g}, the largest norm that a rank has of its part; that of the whole is "
        f"{first.whole:.4g}",
        cause="the maximum is taken of the norms of the ranks' parts",
        advice="All-reduce the squares of the norms, and take the root of that. The maximum is right for the infinity "
        "norm alone.",
        where=one.rank.where(one.norm.step_site),
        count=len(clipped),
        links=(f"optimizer {optimizer}",),
    )
