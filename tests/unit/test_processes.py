"""Who is left when the ranks have gone."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from ddpcheck.ranks.processes import Family


@pytest.fixture
def started() -> Iterator[list[psutil.Popen]]:
    """A process that is about to end, and one that stays."""
    processes = [psutil.Popen(["true"]), psutil.Popen(["sleep", "600"])]
    yield processes
    for process in processes:
        if process.is_running():
            process.kill()
        process.wait()


def seen_in_turn(monkeypatch: pytest.MonkeyPatch, *looks: list[psutil.Popen]) -> None:
    """Let the family look like this, one look after the other, and be empty then."""
    left = list(looks)
    monkeypatch.setattr(Family, "strangers", lambda self: left.pop(0) if left else [])


def test_a_process_that_ends_is_no_orphan(monkeypatch, started):
    """A helper on its way out is waited for, and not named."""
    seen_in_turn(monkeypatch, started[:1])
    assert Family().orphans() == []


def test_a_process_that_stays_is_one(monkeypatch, started):
    """Among several, those that stay are named."""
    seen_in_turn(monkeypatch, started)
    assert Family().orphans(patience=0.2) == started[1:]


def test_one_that_was_started_on_the_way_out_is_found(monkeypatch, started):
    """A process that forks and ends between two looks does not hide its child."""
    seen_in_turn(monkeypatch, started[:1], started[1:])
    assert Family().orphans(patience=0.2) == started[1:]
