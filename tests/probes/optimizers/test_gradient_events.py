"""What looks at gradients cost has a bound, however many parameters and backwards there are that they are not for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ddpcheck.probes.optimizers import gradient_events, gradient_norms, windows
from ddpcheck.probes.optimizers.gradient_events import ALLOWANCE, ALWAYS, MOST_BACKWARDS, _Backwards
from ddpcheck.vocabulary.clock import clock

IDLE = 7
"""The number of an optimizer that steps no more."""


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes as a test says; of a process whose looks have taken nothing so far."""
    seconds = [0.0]
    monkeypatch.setattr(clock, "fine", lambda: seconds[0], raising=False)
    for name, value in (("count", 0), ("since", 0.0), ("spent", 0.0), ("at_step", {})):
        monkeypatch.setattr(_Backwards, name, value)
    monkeypatch.setattr(gradient_events, "_optimizers", {})
    monkeypatch.setattr(gradient_events.Quiet, "recorded", [lambda number: True])
    monkeypatch.setattr(gradient_events, "_calling", set())
    monkeypatch.setattr(gradient_events, "_stepping", {})
    monkeypatch.setattr(windows, "_open", {})
    return seconds


def backwards(number: int) -> list[bool]:
    """Whether a look at each of these is too costly."""
    found = []
    for _ in range(number):
        _Backwards.count += 1
        found.append(gradient_events.is_too_costly(IDLE))
    return found


def test_the_first_are_looked_at_whatever_it_costs(now: list[float]) -> None:
    _Backwards.spent = 1e6
    assert backwards(ALWAYS + 3) == [False] * ALWAYS + [True] * 3
    gradient_events._stepped(None, IDLE)
    assert backwards(ALWAYS + 1) == [False] * ALWAYS + [True]


def test_the_others_while_they_cost_little(now: list[float]) -> None:
    """Little is a share of the time, and something beside that."""
    _Backwards.spent = ALLOWANCE
    assert not any(backwards(MOST_BACKWARDS))
    assert backwards(1) == [True]
    gradient_events._stepped(None, IDLE)
    _Backwards.spent += 1.0
    assert backwards(ALWAYS + 1)[-1]
    now[0] = 200.0
    assert backwards(1) == [False]


def test_what_the_looks_take_is_counted(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    event = gradient_events.Event()
    event.also(lambda seconds: now.__setitem__(0, now[0] + seconds))
    gradient_events._timed(event, 3.0)
    assert _Backwards.spent == 3.0


def test_an_optimizer_that_steps_no_more_costs_nothing(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parameters are not even listed."""
    read: list[Any] = []
    monkeypatch.setattr(windows, "_read", read.append)
    monkeypatch.setattr(gradient_norms, "_has_shards", lambda parameters: bool(read.append(parameters)))
    idle = torch.optim.SGD([torch.ones(2, requires_grad=True) for _ in range(5)], lr=0.1)
    gradient_events.follow(idle, IDLE)
    _Backwards.spent = 1e6
    for number in range(50):
        _Backwards.count += 1
        windows._begins(None)
        windows._ends()
        gradient_norms._backward_ended()
        assert len(read) == (2 * 5 + 1) * min(number + 1, ALWAYS)
    assert windows._open[IDLE].lost


def test_what_stands_around_a_call(monkeypatch):
    """The last to ask begins first and ends last; one that fails keeps no other from it, nor the call."""
    surroundings, said, failed = gradient_events.Surroundings(), [], []
    monkeypatch.setattr(gradient_events, "defect", failed.append)

    def hook(name):
        def begins(given):
            said.append(f"{name} {given}")
            return lambda is_well: said.append(f"{name} {is_well}")

        return begins

    def fails(_):
        raise ValueError("ours")

    for one in (hook("inner"), fails, hook("outer"), lambda _: fails):
        surroundings.also(one)
    assert surroundings.around(lambda: said.append("call") or 3, 7) == 3
    assert said == ["outer 7", "inner 7", "call", "inner True", "outer True"]
    assert len(failed) == 2
    said.clear()
    with pytest.raises(KeyError):
        surroundings.around(lambda: {}["no"], 7)
    assert said[-2:] == ["inner False", "outer False"]
