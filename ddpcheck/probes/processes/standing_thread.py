"""Whether the main thread stays in a call of C all the time, or comes to it again and again.

A loop that gives up the GIL in one call alone, as ``for x in numbers: x.item()``
does, is met there at every look. It is told from a call that waits by its
processor time: who waits asleep takes none and asks for none, and who waits by
spinning takes it also while another thread has the GIL.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
import threading
import time
from pathlib import Path
from time import sleep  # by name: a test may replace that of the module

from ddpcheck.vocabulary.clock import clock

ASLEEP = 0.02
"""The part of a core below which a thread sleeps."""
HELD = 0.0003
"""Seconds for which the GIL is kept from the others, well below the time after which they may ask for it. This thread
sleeps meanwhile: on a busy machine it would have taken the core of the one that it looks at."""
_TRIES, _SEEN, _REST = 6, 2, 0.001
"""Two tries have to show it: what a machine that stands still for others takes is counted as work, too."""

_time_of, _clock_of = getattr(time, "clock_gettime", None), getattr(time, "pthread_getcpuclockid", None)
_has_gil = not sysconfig.get_config_var("Py_GIL_DISABLED")
_sleep_with_gil = getattr(ctypes.PyDLL(None), "usleep", None) if _has_gil and _clock_of is not None else None


class Standing:
    """Asked at each look at which the main thread was at the same call as before."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def moved(self) -> None:
        """It is at another place."""
        self._before = None

    def look(self) -> bool:
        """Whether it has been in the one call since the last look; False where that cannot be told.

        The main thread has to be alive.
        """
        used = _used()
        if used is None:
            return False
        before, self._before = self._before, (clock.now(), asked := used + _kept_waiting())
        if before is None:
            return False
        at, asked_then = before
        return asked - asked_then < ASLEEP * (clock.now() - at) or _spins()


def _spins() -> bool:
    """Whether it works while it cannot run Python code: on a busy machine it may not get a core at once."""
    if _sleep_with_gil is None or sys.getswitchinterval() < 4 * HELD:
        return False
    seen = 0
    for _ in range(_TRIES):
        sleep(_REST)  # so that nobody has asked for the GIL before it is kept
        before, began = _used(), clock.fine()
        _sleep_with_gil(int(HELD * 1e6))
        after, lasted = _used(), clock.fine() - began
        seen += before is not None and after is not None and after - before > lasted / 2
    return seen >= _SEEN


def _used() -> float | None:
    """Its processor time; None where that cannot be told, as on macOS."""
    thread = threading.main_thread().ident
    if _time_of is None or _clock_of is None or thread is None:
        return None
    try:
        return float(_time_of(_clock_of(thread)))
    except OSError:
        return None


def _kept_waiting() -> float:
    """The seconds for which it was ready and got no core; 0 where the system does not say."""
    try:
        told = Path(f"/proc/self/task/{threading.main_thread().native_id}/schedstat").read_text()
        return int(told.split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
