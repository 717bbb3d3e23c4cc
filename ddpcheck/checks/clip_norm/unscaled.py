"""Are gradients clipped after a scaler has undone its factor, and not before?"""

from __future__ import annotations

from ddpcheck.checks.clip_norm.moments import CLIPS, Measured, Step
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding

FAR = 100.0
"""How many times larger than the bound a scale has to be: a program may multiply its bound by the scale."""


def judge(world: World, steps: list[tuple[int, int, Step]]) -> tuple[int, list[Finding]]:
    """How many clips were followed by a scaler's division, or might have been, and the findings."""
    checked = 0
    wrong: dict[int, list[Measured]] = {}
    clips: dict[int, int] = {}
    for optimizer, _, step in steps:
        for measured in step.values():
            for one in measured:
                if one.norm.how not in CLIPS or one.norm.largest is None:
                    continue
                checked += 1
                clips[optimizer] = clips.get(optimizer, 0) + 1
                scale = one.norm.scale
                if scale is not None and scale > FAR * one.norm.largest and scale > 1:
                    wrong.setdefault(optimizer, []).append(one)
    return checked, [_finding(its) for optimizer, its in wrong.items() if len(its) == clips[optimizer]]


def _finding(wrong: list[Measured]) -> Finding:
    first = wrong[0]
    norm = first.norm
    return Finding(
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
