"""TODO."""

from __future__ import annotations

from collections.abc import Iterable

from ddpcheck.checks.world import Judged, World


def judge(world: World) -> Iterable[Judged]:
    return ()


def certain(world: World, now: float) -> bool:
    """Whether some rank waits for what can come no more."""
    return False
