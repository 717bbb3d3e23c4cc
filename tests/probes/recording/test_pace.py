"""How often a probe looks, and what a look on a device is charged with."""

from __future__ import annotations

from functools import partial

import pytest

from ddpcheck.probes.recording import pace
from ddpcheck.probes.recording.pace import BUDGET, FIRST, FIRST_ON_DEVICES, Pace


class Clock:
    now = 0.0
    steps = 0

    def fine(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(pace, "clock", one)
    return one


def _known(clock: Clock, at: int, seconds: float) -> float | None:
    return seconds if clock.steps >= at else None


def run(clock: Clock, it: Pace, steps: int, step: float, host: float, device: float, behind: int) -> tuple[float, int]:
    """Steps of a training whose device is so many steps behind: seconds that its looks have taken, and how many."""
    cost, looks = 0.0, 0
    for number in range(steps):
        if it.is_due(number):
            looks += 1
            cost += host + device
            it.spent(host, number, [partial(_known, clock, number + behind, device)])
        clock.now += step
        clock.steps = number + 1
    return cost, looks


def test_the_first_steps_are_looked_at(clock: Clock) -> None:
    """All of them where the cost is known at once."""
    it = Pace(careful=True)
    assert [it.is_due(number) for number in range(FIRST)] == [True] * FIRST


def test_nothing_more_is_asked_of_a_device_before_its_cost_is_known(clock: Clock) -> None:
    """After the first two; a look that is cheap by its nature goes on."""
    careful, other = Pace(careful=True), Pace()
    for it in (careful, other):
        it.spent(0.001, 0, [lambda: None])
    assert [careful.is_due(number) for number in (1, 2, 3, 4, 64)] == [True] + [False] * 4
    assert [other.is_due(number) for number in (1, 2, 3, 4, 64)] == [True] * 5
    assert FIRST_ON_DEVICES == 2


def test_it_is_the_devices_time_that_counts(clock: Clock) -> None:
    """A host that had to wait for room in the queue has cost nothing: the least that it took is charged."""
    it = Pace(careful=True)
    for number in range(FIRST, FIRST + 40):
        clock.now += 0.1
        if it.is_due(number):
            it.spent(0.0002 if number == FIRST else 0.09, number, [lambda: 0.0001])
    assert it.stride == 1
    dear = Pace(careful=True)
    for number in range(FIRST, FIRST + 40):
        clock.now += 0.1
        if dear.is_due(number):
            dear.spent(0.0005, number, [lambda: 0.05])
    assert dear.stride > 8


@pytest.mark.parametrize(("step", "host", "device"), [
    (0.300, 0.025, 0.060),  # a model of 1 B parameters
    (0.012, 0.002, 0.0005),  # a small one
])  # fmt: skip
@pytest.mark.parametrize("behind", [0, 1, 5, 40])
def test_the_looks_keep_to_their_share(clock: Clock, step: float, host: float, device: float, behind: int) -> None:
    """However far the device is behind."""
    for steps in (200, 1000, 5000):
        clock.now, clock.steps = 0.0, 0
        it = Pace(careful=True)
        cost, looks = run(clock, it, steps, step, host, device, behind)
        first = FIRST_ON_DEVICES * (host + device)
        assert cost - first < 3 * BUDGET * steps * step
        assert looks > FIRST_ON_DEVICES
