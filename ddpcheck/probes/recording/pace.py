"""How often a probe looks, so that the training keeps its speed: by powers of two, the same on all ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ddpcheck.probes.recording.lone_rank import is_lone
from ddpcheck.vocabulary.clock import clock

FIRST = 4
"""Steps, from the first, that are looked at whatever it costs: that is where most faults show."""

FIRST_ON_DEVICES = 2
"""The same where devices do the work: it may be dear, and it is known only later."""

ENOUGH = 4
"""Looks after which the stride is chosen anew: the time of a single one may be chance. What devices take is not."""

BUDGET = 0.0033
"""The share of the time between two looks that they may take. With one optimizer there are three paces: 1 % in all."""

Later = Callable[[], "float | None"]
"""Seconds that a device has worked; None as long as it has not come so far."""


def is_due(number: int) -> bool:
    """The first eight of a kind, and from there every power of two and its thousandths; none of a lone rank's."""
    if is_lone():
        return False
    return number < 8 or number & (number - 1) == 0 or number % 1024 == 0


class Pace:
    """A stride that grows with what a look costs.

    It is a power of two: ranks that have come to different ones look at the
    same places now and then. One that is ``careful`` does not look again before
    it is known what the looks before have cost.
    """

    def __init__(self, careful: bool = False, first: int = FIRST) -> None:
        self.stride = 1
        self._asked = first
        self._careful = careful
        self._spent = 0.0
        self._since = clock.fine()
        self._looks = 0
        self._open: deque[tuple[float, list[Later], int]] = deque()
        """Looks of which a device has not done its part: seconds of the host, of the devices, and the step."""
        self._least: float | None = None
        self._first, self._enough = first, ENOUGH

    def is_due(self, number: int) -> bool:
        self._settle()
        if is_lone():
            return False
        if number >= FIRST_ON_DEVICES and self._careful and self._open:
            return False
        return number < self._first or number % self.stride == 0

    def spent(self, seconds: float, number: int, on_devices: list[Later] | None = None) -> None:
        """Take note of what a look has cost, and look less often where that is too much.

        ``seconds`` are those of the host; ``on_devices`` tell, later, those that devices have taken.
        """
        if on_devices:
            # A host that is ahead of its device waits until there is room for more work, whoever queues it. What the
            # queueing itself takes is always the same: the least that was seen.
            self._least = seconds if self._least is None else min(self._least, seconds)
            self._first, self._enough = min(self._asked, FIRST_ON_DEVICES), 1
            self._open.append((self._least, on_devices, number))
            self._settle()
        else:
            self._take(seconds, number)

    def _settle(self) -> None:
        """Take what has become known."""
        while self._open:
            seconds, on_devices, number = self._open[0]
            told = [known() for known in on_devices]
            if None in told:
                return
            self._open.popleft()
            self._take(seconds + sum(one for one in told if one is not None), number)

    def _take(self, seconds: float, number: int) -> None:
        if number < self._first:
            self._since = clock.fine()
            return
        self._spent += seconds
        self._looks += 1
        if self._looks >= self._enough:
            passed = clock.fine() - self._since
            while self._spent > BUDGET * passed and self.stride < 1 << 16:
                self.stride *= 2
                self._spent /= 2
            while self._spent * 4 < BUDGET * passed and self.stride > 1:
                self.stride //= 2
                self._spent *= 2
            self._since = clock.fine()
            self._spent, self._looks = 0.0, 0
