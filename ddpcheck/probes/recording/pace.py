"""How often a probe looks, so that the training keeps its speed: by powers of two, the same on all ranks."""

from __future__ import annotations

from ddpcheck.vocabulary.clock import clock

FIRST = 4
"""Steps, from the first, that are looked at whatever it costs: that is where most faults show."""

BUDGET = 0.01
"""The share of the time between two looks that they may take."""


def is_due(number: int) -> bool:
    """The first eight of a kind, and from there every power of two and its thousandths."""
    return number < 8 or number & (number - 1) == 0 or number % 1024 == 0


class Pace:
    """A stride that grows with what a look costs.

    It is a power of two: ranks that have come to different ones look at the
    same places now and then.
    """

    def __init__(self) -> None:
        self.stride = 1
        self._spent = 0.0
        self._since = clock.fine()
        self._looks = 0

    def is_due(self, number: int) -> bool:
        return number < FIRST or number % self.stride == 0

    def spent(self, seconds: float, number: int) -> None:
        """Take note of what a look has cost, and look less often where that is too much."""
        if number < FIRST:
            self._since = clock.fine()
            return
        self._spent += seconds
        self._looks += 1
        if self._looks >= 4:
            passed = clock.fine() - self._since
            while self._spent > BUDGET * passed and self.stride < 1 << 16:
                self.stride *= 2
                self._spent /= 2
            while self._spent * 4 < BUDGET * passed and self.stride > 1:
                self.stride //= 2
                self._spent *= 2
            self._since = clock.fine()
            self._spent, self._looks = 0.0, 0
