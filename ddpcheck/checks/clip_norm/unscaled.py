"""Are gradients clipped after a scaler has undone its factor, and not before?"""

from __future__ import annotations

import math

from ddpcheck import evidence as ev
from ddpcheck.checks.clip_norm.moments import ALIKE, CLIPS, Measured, Step
from ddpcheck.judging.step_alignment import Windows
from ddpcheck.vocabulary.model import Finding

FAR = 100.0
"""How many times larger than the bound a scale has to be: a program may multiply its bound by the scale."""


def judge(steps: list[tuple[int, int, Step]]) -> tuple[Windows, list[Finding]]:
    """The windows whose clip was followed by a scaler's division, or might have been, and the findings."""
    checked = Windows()
    wrong: dict[int, list[Measured]] = {}
    clips: dict[int, int] = {}
    for optimizer, number, step in steps:
        for measured in step.values():
            for one in measured:
                bound = one.norm.largest
                is_clip = one.norm.how in CLIPS and bound is not None and math.isfinite(bound)
                if not is_clip or (one.norm.scale is not None and one.norm.factor is None):
                    continue
                checked.add((optimizer, number))
                clips[optimizer] = clips.get(optimizer, 0) + 1
                if _is_clipped_while_scaled(one.norm):
                    wrong.setdefault(optimizer, []).append(one)
    always = {optimizer: its for optimizer, its in wrong.items() if len(its) == clips[optimizer]}
    return checked, [_finding(its) for its in always.values()]


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
        count=len(wrong),
        links=(f"optimizer {norm.optimizer}",),
    )
