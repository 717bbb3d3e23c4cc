"""TODO."""

from __future__ import annotations

from collections.abc import Iterable

from ddpcheck.checks.world import Judged, World


def judge(world: World) -> Iterable[Judged]:
    return ()
