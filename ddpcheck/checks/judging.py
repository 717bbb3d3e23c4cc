"""The judges of a script's run, one after the other, and one verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ddpcheck.catalogue import CHECKS
from ddpcheck.checks.world import Judged, World

Judge = Callable[[World], Iterable[Judged]]


def judges() -> list[Judge]:
    """Every family's judge."""
    from ddpcheck.checks import (
        calls,
        checkpoints,
        coverage,
        endings,
        leftovers,
        loaders,
        optimizing,
        placement,
        stateful,
        steps,
        streams,
        waiting,
    )

    return [
        endings.judge,
        waiting.judge,
        calls.judge,
        loaders.judge,
        coverage.judge,
        steps.judge,
        stateful.judge,
        optimizing.judge,
        streams.judge,
        checkpoints.judge,
        placement.judge,
        leftovers.judge,
    ]


def judge_world(world: World) -> dict[str, Judged]:
    """What each check has to say; one that nothing has exercised is among them."""
    found = {check: Judged(check=check, exercised=0) for check in CHECKS}
    for judge in judges():
        for judged in judge(world):
            before = found[judged.check]
            found[judged.check] = Judged(
                check=judged.check,
                exercised=before.exercised + judged.exercised,
                findings=before.findings + judged.findings,
                skipped_because=before.skipped_because or judged.skipped_because,
            )
    return found
