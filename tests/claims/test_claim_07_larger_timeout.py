"""Claim 7 (S0): ranks that are skewed need a larger timeout in init_process_group.

The late rank is late by what has happened, not by the clock's luck: it comes
when the others have given up; or, where they must not, when they have
waited for longer than the small timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ddpcheck
from fixtures import s0_basic
from tests.claims.groups import group_by_file

SMALL, LARGE = 0.5, 30.0


def wait_until(happened: Callable[[], bool]) -> None:
    while not happened():
        time.sleep(0.01)


def begun(mark: Path) -> float:
    """When the waiting rank began to wait, on the clock that all ranks of a machine share; infinity before."""
    text = mark.read_text() if mark.exists() else ""
    return float(text) if text.endswith("\n") else float("inf")


@pytest.mark.ddp(world_size=2)
def test_delay_beyond_a_small_timeout_fails(ddp):
    """The rank that is in time gives up at the timeout, with an error that names it; the late one finds nobody."""
    gave_up = ddp.tmp_path / "gave up"
    with group_by_file(ddp, timeout=SMALL):
        model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
        if ddp.rank == 1:
            wait_until(gave_up.exists)
        began = time.monotonic()
        with pytest.raises(RuntimeError) as caught:
            s0_basic.loss_of(model, s0_basic.make_batch(ddp.rank)).backward()
        if ddp.rank == 0:
            assert time.monotonic() - began >= SMALL
            assert f"{SMALL * 1000:.0f}ms" in str(caught.value)
            gave_up.touch()


@pytest.mark.ddp(world_size=2)
def test_the_same_delay_under_a_large_timeout_passes(ddp):
    """A rank that comes when the other has waited for longer than the small timeout is waited for, and all is well."""
    mark = ddp.tmp_path / "waiting since"
    with group_by_file(ddp, timeout=LARGE):
        model = ddp.wrap(s0_basic.build_model(seed=ddp.rank))
        if ddp.rank == 0:
            mark.write_text(f"{time.monotonic()}\n")
        else:
            wait_until(lambda: time.monotonic() > begun(mark) + 1.2 * SMALL)
        s0_basic.loss_of(model, s0_basic.make_batch(ddp.rank)).backward()

        assert time.monotonic() > begun(mark) + SMALL
        ddpcheck.assert_gradients_identical(model)


@pytest.mark.ddp(world_size=2)
def test_the_timeout_counts_for_joining_too(ddp):
    """Who is in time gives up waiting, within init_process_group, for a rank that has not come to it yet."""
    gave_up = ddp.tmp_path / "gave up"
    if ddp.rank == 1:
        wait_until(gave_up.exists)
        return
    with pytest.raises(RuntimeError, match=r"(?i)time(d )?out"), group_by_file(ddp, timeout=SMALL):
        pass
    gave_up.touch()
