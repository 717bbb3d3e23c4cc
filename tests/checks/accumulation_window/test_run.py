"""The judge of accumulation-window, without processes."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.accumulation_window.run import judge
from tests.judging.sharded_models import optimizer
from tests.judging.written import Made, world

BACKWARD, CLIP, STEP = 120, 121, 9


def between(became: str, **more: Any) -> ev.Between:
    return ev.Between(became=became, after=BACKWARD, before=BACKWARD, **more)  # type: ignore[arg-type]


def window(number: int, *its: ev.Between, **more: Any) -> Made:
    """The window before a step at line 9."""
    given = {"backwards": len(its) + 1, **more}
    return ev.Window, {
        "optimizer": 0, "number": number, "site": STEP, "backward_site": BACKWARD, "between": list(its), **given,
    }  # fmt: skip


def of(*windows: Made) -> Any:
    """Two ranks with these windows;"""
    line = {"file": "train.py", "function": "main", "caller": 0, "through": (), "first": 1}
    sites: list[Made] = [
        (ev.Site, {"id": BACKWARD, "line": 2, "text": "backward()", "body": "", **line}),
        (ev.Site, {"id": CLIP, "line": 3, "text": "clip()", "body": "", **line}),
    ]
    return world(*([*sites, optimizer(3, {"weight": None, "bias": None}), *windows] for _ in range(2)))


def found(*windows: Made) -> list[tuple[str, str]]:
    """Severity and cause."""
    return [(one.severity, one.cause) for one in judge(of(*windows)).findings]


def test_single_batches_are_not_checked():
    """A step for each backward(), and no word of a window."""
    judged = judge(of(*(window(n) for n in range(4))))
    assert judged.checked == 0
    assert judged.skipped_because


# --- lost, overwritten


@pytest.mark.parametrize(("alone", "times"), [(True, 1), (False, 0)])
def test_overwritten(alone, times):
    """By the last reduction; unless the step is made on something else in the end."""
    windows = [window(n, between("overwritten"), alone=alone) for n in range(3)]
    assert len(found(*windows)) == times


def test_a_step_before_the_reduction():
    """FSDP was told not to reduce in any backward() of the window."""
    assert len(found(*(window(n, unreduced=True) for n in range(3)))) == 1
    assert found(window(0, unreduced=True), window(1), window(2)) == []
