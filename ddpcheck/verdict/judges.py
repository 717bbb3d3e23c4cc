"""The judges of a script's run, one after the other, over the evidence of one world."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable

from ddpcheck import evidence as ev
from ddpcheck.checks import checkpoints, loaders, steps
from ddpcheck.checks.buffer_sync import run as stateful
from ddpcheck.checks.catalogue import CHECKS
from ddpcheck.checks.collective_order import run as calls
from ddpcheck.checks.device_placement import run as placement
from ddpcheck.checks.gradient_sync import program_reductions
from ddpcheck.checks.no_hang import run as waiting
from ddpcheck.checks.optimizer_sync import run as optimizing
from ddpcheck.checks.parameter_sync import evaluated_weights
from ddpcheck.checks.process_hygiene import run as leftovers
from ddpcheck.checks.rank_failure import run as endings
from ddpcheck.checks.reducer_coverage import run as coverage
from ddpcheck.checks.rng_independence import run as streams
from ddpcheck.judging.world import Judged, World
from ddpcheck.verdict import interruption, missing_evidence

Judge = Callable[[World], Iterable[Judged]]

JUDGES: tuple[Judge, ...] = (
    endings.judge,
    waiting.judge,
    calls.judge,
    loaders.judge,
    coverage.judge,
    steps.judge,
    program_reductions.judge,
    evaluated_weights.judge,
    stateful.judge,
    optimizing.judge,
    streams.judge,
    checkpoints.judge,
    placement.judge,
    leftovers.judge,
)
"""One for each family of checks."""


def judge_world(world: World, defects: list[str] | None = None) -> dict[str, Judged]:
    """What each check has to say; one that nothing has checked is among them.

    A judge that fails is a defect of ours: its traceback goes to ``defects``,
    and the others are heard all the same.
    """
    found = {check: Judged(check=check, checked=0) for check in CHECKS}
    for judge in JUDGES:
        try:
            said = list(judge(world))
        except Exception:
            if defects is None:
                raise
            defects.append(traceback.format_exc())
            continue
        for judged in said:
            found[judged.check] = _together(found[judged.check], judged)
    if not any(rank.of(ev.Wrapped) or rank.of(ev.Step) for rank in world):
        found = {check: _nothing(judged) for check, judged in found.items()}
    found = missing_evidence.only_grounded(found, world)
    return found if world.now is None else interruption.without_ends(found)


def _together(before: Judged, judged: Judged) -> Judged:
    return Judged(
        check=judged.check,
        checked=before.checked + judged.checked,
        findings=before.findings + judged.findings,
        skipped_because=before.skipped_because or judged.skipped_because,
    )


def _nothing(judged: Judged) -> Judged:
    """A program that neither wraps a model nor steps an optimizer trains nothing that could be checked."""
    if judged.findings:
        return judged
    reason = judged.skipped_because if not judged.checked else ""
    return Judged(check=judged.check, checked=0, skipped_because=reason or "no DDP in the program")
