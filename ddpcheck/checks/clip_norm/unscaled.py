"""Are gradients clipped after a scaler has undone its factor, and not before?"""

from __future__ import annotations

import math
from collections import defaultdict

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm.moments import ALIKE, CLIPS, Measured, Step, differ
from ddpcheck.judging.step_alignment import Windows
from ddpcheck.vocabulary.model import Finding

FAR = 100.0
"""How many times larger than the bound a scale has to be: a program may multiply its bound by the scale."""


def judge(steps: list[tuple[int, int, Step]]) -> tuple[Windows, list[Finding]]:
    """The windows whose clip might have been followed by a scaler's division, and was the same on all ranks.

    And the findings: clips that were followed by one on any rank.
    """
    checked = Windows()
    clips: dict[int, list[Measured]] = defaultdict(list)
    ranks: dict[int, int] = defaultdict(int)
    for optimizer, _, step in steps:
        ranks[optimizer] = max(ranks[optimizer], len(step))
    for optimizer, number, step in steps:
        each = [list(filter(_is_clip, measured)) for measured in step.values()]
        clips[optimizer] += [one for its in each for one in its]
        if len(each) == ranks[optimizer] > 1 and all(each) and _are_alike(each):
            checked.add((optimizer, number))
    wrong = [its for its in clips.values() if its and all(_is_clipped_while_scaled(one.norm) for one in its)]
    checked |= {(one.norm.optimizer, one.norm.number) for its in wrong for one in its}
    return checked, [_finding(its) for its in wrong]


def _is_clip(one: Measured) -> bool:
    is_clip = one.norm.how in CLIPS and one.norm.largest is not None and math.isfinite(one.norm.largest)
    return is_clip and (one.norm.scale is None or one.norm.factor is not None)


def _are_alike(each: list[list[Measured]]) -> bool:
    """Whether all ranks clipped the whole of the same gradients, by one factor: so it is of copies, once reduced."""
    if any(one.norm.factor is None or one.norm.scale not in (None, 1.0) for its in each for one in its):
        return False
    if any(differ(one.norm.came or 0.0, math.sqrt(one.total)) for its in each for one in its):
        return False
    lists = [[number or 0.0 for one in its for number in (one.norm.factor, *one.squares)] for its in each]
    alike = len({len(its) for its in lists}) == 1
    return alike and not any(differ(min(numbers), max(numbers)) for numbers in zip(*lists, strict=True))


def _is_clipped_while_scaled(norm: ev.Norm) -> bool:
    """Whether gradients are made smaller than a scaler makes them afterwards: a clip of another optimizer's is none."""
    scale, largest = norm.scale, norm.largest
    if scale is None or largest is None or norm.factor is None:
        return False
    return scale > FAR * largest and scale > 1 and norm.factor * scale < 1 - ALIKE


def _finding(wrong: list[Measured]) -> Finding:
    first = wrong[0]
    norm = first.norm
    return Finding(
        rule="clip-before-unscale",
        ranks=tuple(sorted({one.rank.rank for one in wrong})),
        subject="the gradients",
        step=norm.number,
        expected="gradients to be clipped after the scaler has divided them by its scale",
        found=f"the norm of gradients that were still multiplied by {norm.scale:g}, which is clipped to "
        f"{norm.largest:g}: an update of no more than {(norm.largest or 0) / (norm.scale or 1):.3g} in norm is left",
        cause="scaler.unscale_(optimizer) was not called before the clip",
        advice="Call scaler.unscale_(optimizer) between backward() and the clip.",
        where=first.rank.where(norm.site),
        count=len({one.norm.number for one in wrong}),
        links=(f"optimizer {norm.optimizer}",),
    )
