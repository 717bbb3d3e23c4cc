"""Time as it passes, whatever a program or a test has made of the module ``time``."""

from __future__ import annotations

import time


class _Clock:
    """The clocks, held where no mock replaces them: freezegun goes through the names of all modules."""

    now = staticmethod(time.monotonic)
    fine = staticmethod(time.perf_counter)
    wall = staticmethod(time.time)


clock = _Clock()
