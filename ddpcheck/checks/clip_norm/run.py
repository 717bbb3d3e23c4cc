"""Is the norm that clips gradients that of the whole, reduced, unscaled gradient? Judge of clip-norm."""

from __future__ import annotations

from ddpcheck.checks.clip_norm import counted, factors, largest_part, moments, parts_read, unscaled
from ddpcheck.judging.world import Judged, World


def judge(world: World) -> Judged:
    """Compare what the ranks measured before their steps, and what they multiplied their gradients by."""
    steps = list(moments.steps(world))
    clipping = moments.clipping(steps)
    checked, findings = 0, []
    for times, its in (
        factors.judge(world, steps, clipping),
        counted.judge(world, steps, clipping),
        largest_part.judge(steps),
        unscaled.judge(steps),
        (0, parts_read.judge(world)),
    ):
        checked += times
        findings += its
    return Judged(
        checked=checked,
        findings=tuple(findings),
        skipped_because="" if checked else "no gradients were seen to be clipped by a norm that could be looked at",
    )
