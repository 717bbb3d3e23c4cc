"""Is the norm that clips gradients that of the whole, reduced, unscaled gradient? Judge of clip-norm."""

from __future__ import annotations

from ddpcheck.checks.clip_norm import counted, factors, largest_part, moments, parts_read, unscaled
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import Finding


def judge(world: World) -> Judged:
    """Compare what the ranks measured before their steps, and what they multiplied their gradients by."""
    steps = list(moments.steps(world))
    clipping = moments.clipping(steps)
    windows: step_alignment.Windows = set()
    findings: list[Finding] = []
    for compared, its in (
        factors.judge(world, steps, clipping),
        counted.judge(world, steps, clipping),
        largest_part.judge(steps),
        unscaled.judge(steps),
        (set(), parts_read.judge(world)),
    ):
        windows |= compared
        findings += its
    checked, made = step_alignment.coverage(world, windows)
    return Judged(
        checked=checked,
        of=made,
        findings=tuple(findings),
        skipped_because="" if checked else "ddpcheck saw no step whose whole gradient all ranks clipped by one norm",
    )
