"""Are gradients left alone between a clip and the step? The bound is none if they are divided after that."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm.moments import Measured, Step, differ
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding

AT_LEAST = 2
"""Steps at which gradients were over the bound."""
LARGEST = 10.0
"""The largest bound that is taken for one of divided gradients: a program may multiply it by what it divides by."""
FAR = 0.1
"""By how much of itself what is left of the norm differs from the bound, where it was not for rounding."""


class _Left(NamedTuple):
    """A clip that has made gradients smaller, and what came of it."""

    each: list[Measured]
    norm: float
    """Before the clip."""
    left: float
    """At the step."""

    @property
    def bound(self) -> float:
        return self.each[0].norm.largest or 0.0


def judge(world: World, steps: list[tuple[int, int, Step]]) -> tuple[int, list[Finding]]:
    """How many clips were looked at whose norm is known, and the findings."""
    stepped = {rank.rank: {one.optimizer for one in rank.of(ev.Step)} for rank in world}
    met: dict[int, list[_Left]] = defaultdict(list)
    for optimizer, _, step in steps:
        # A clip over the parameters of two optimizers has another norm than those of one.
        if any(len(stepped[rank]) > 1 for rank in step):
            continue
        met[optimizer] += _left(step)
    findings = []
    for its in met.values():
        wrong = [one for one in its if differ(one.left, one.bound, FAR)]
        bounds = {one.bound for one in its}
        numbers = {one.each[0].norm.number for one in wrong}
        if len(numbers) >= AT_LEAST and len(wrong) == len(its) and len(bounds) == 1 and max(bounds) <= LARGEST:
            findings.append(_finding(wrong))
    return sum(len(its) for its in met.values()), findings


def _left(step: Step) -> Iterator[_Left]:
    """Where there is one clip before the step, of all ranks that have parts of the model, and nothing else is known."""
    clips = {rank: [one for one in its if one.norm.how in ("clip_grad_norm_",)] for rank, its in step.items()}
    for rank, its in clips.items():
        if len(its) != 1 or not its[0].norm.largest or its[0].norm.factor is None or its[0].norm.scale is not None:
            continue
        among = its[0].among
        if rank != min(among) or not all(len(clips.get(other, ())) == 1 for other in among):
            continue
        each = [clips[other][0] for other in sorted(among)]
        if not _is_known(each):
            continue
        norm = math.sqrt(math.fsum(one.total for one in each))
        if math.isfinite(norm) and norm > its[0].norm.largest * (1 + FAR):
            yield _Left(each, norm, norm * its[0].norm.factor)


def _is_known(each: list[Measured]) -> bool:
    """Whether these have all of the gradient that torch's function has measured, each element once."""
    layouts = [p.layout for one in each for p in one.parameters]
    if len(each) == 1:
        return all(layout is None or not layout.sharded for layout in layouts)
    return all(one is not None and one.ground == "DTensor" and one.sharded and len(one.holders) == 1 for one in layouts)


def _finding(wrong: list[_Left]) -> Finding:
    first = wrong[0]
    one = first.each[0]
    return Finding(
        rule="rescaling-after-clip",
        severity="warning",
        ranks=tuple(sorted({measured.rank.rank for its in wrong for measured in its.each})),
        subject="the gradients",
        step=one.norm.number,
        expected="gradients to be left alone between the clip and the step: what is clipped is what is stepped on",
        found=f"a norm of {first.norm:.4g} clipped to {first.bound:g}, and gradients of the norm {first.left:.4g} when "
        f"the step began: they were multiplied by {first.left / first.bound:.4g} after the clip",
        cause="sums are divided by the number of tokens, micro-batches or ranks after they were clipped",
        advice="Divide first, and clip last, right before the step.",
        where=one.rank.where(one.norm.site),
        count=len(wrong),
        links=(f"optimizer {one.norm.optimizer}",),
    )
