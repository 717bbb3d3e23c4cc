"""Where the soak run's tests find the body of their kind, and what the fixture around it does.

The generated project holds copies of this file and of those that it imports; all of them run in ranks.
"""

from __future__ import annotations

import time
from typing import Any

import bodies_failing
import bodies_passing
import pytest
from bodies_common import culprit

SEEN: list[int] = []
"""Numbers of the tests that this process has run: one, or isolation is broken."""


def run(kind: str, ddp: Any, number: int, request: pytest.FixtureRequest) -> None:
    """Run the body of this kind."""
    __tracebackhide__ = True
    SEEN.append(number)
    assert len(SEEN) == 1
    body = getattr(bodies_passing, kind, None) or getattr(bodies_failing, kind)
    body(ddp, number, request)


def set_up(kind: str, ddp: Any, number: int) -> None:
    """The fixture around every test, before it."""
    if kind == "fails_in_setup" and culprit(ddp, number):
        raise ValueError(f"in setup {number}")


def tear_down(kind: str, ddp: Any, number: int) -> None:
    """The fixture around every test, after it."""
    if kind == "fails_in_teardown" and culprit(ddp, number):
        raise ValueError(f"in teardown {number}")
    if kind == "hangs_in_teardown" and culprit(ddp, number):
        time.sleep(300)
