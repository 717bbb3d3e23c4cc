"""The clock that deadlines are kept by."""

from __future__ import annotations

import time

import pytest

from ddpcheck.vocabulary.clock import clock


def test_no_mock_reaches_it() -> None:
    """Neither one of the module `time`, nor freezegun, which replaces the functions in all modules that have them."""
    freezegun = pytest.importorskip("freezegun")
    now, fine, wall = clock.now(), clock.fine(), clock.wall()
    with freezegun.freeze_time("2001-02-03"):
        assert time.monotonic() == time.monotonic()
        assert clock.now() > now
        assert clock.fine() > fine
        assert clock.wall() >= wall > time.time()
